"""What stands behind each operation and operand type: how many vectors, and how many of the project's tests.

The figures are committed in `tests/data`, so that the table of operations can be made without the vectors:
{backend: {operation: {operand type: vectors}}}, and the same of tests.
"""

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import settings

from driver.backends import registry
from driver.backends.api import Backend, CompiledSubgraph, CompileOptions, Output, Run, SubgraphView
from driver.control_flow import If, While
from driver.graph import OperationView, graphs
from driver.plan import Frame, Progress
from nnhal.operations import SIGNATURES
from nnhal.types import AnyArray, Model, OperandType, OperationType
from tests.driver.validation.vectors import cases, model_of
from tests.shared import SHARED

DATA = Path(__file__).resolve().parent / "data"
DRIVER = "driver"
"""In the place of a backend for IF and WHILE, which the driver runs itself."""

TYPES = {
    OperandType.TENSOR_FLOAT32: "float32",
    OperandType.TENSOR_FLOAT16: "float16",
    OperandType.TENSOR_INT32: "int32",
    OperandType.TENSOR_QUANT8_ASYMM: "quant8",
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: "quant8 signed",
    OperandType.TENSOR_QUANT8_SYMM: "quant8 symm",
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: "quant8 per channel",
    OperandType.TENSOR_QUANT16_SYMM: "quant16 symm",
    OperandType.TENSOR_QUANT16_ASYMM: "quant16",
    OperandType.TENSOR_BOOL8: "bool",
    OperandType.FLOAT32: "float32",
    OperandType.FLOAT16: "float16",
    OperandType.INT32: "int32",
}
"""Names of operand types in the table; a scalar counts as a tensor."""

Counts: TypeAlias = dict[str, dict[str, int]]
Pair: TypeAlias = tuple[str, str]
"""An operation and an operand type, by name."""


def leading_input(type_: int) -> int:
    """The input whose type an operation is counted under: the first that may have several types, else the first."""
    arguments = SIGNATURES[type_].inputs[0].required
    return next((i for i, argument in enumerate(arguments) if isinstance(argument.type, str)), 0)


def pair(type_: int, inputs: Sequence[int]) -> Pair:
    """What one operation counts as, from the types of its inputs. IF and WHILE count as bool: their condition."""
    leading = inputs[leading_input(type_)] if type_ in SIGNATURES else OperandType.TENSOR_BOOL8
    return OperationType(type_).name, TYPES[OperandType(leading)]


def _arranged(pairs: Counter[Pair]) -> Counts:
    counts: Counts = {}
    for operation, type_ in sorted(pairs, key=lambda each: (OperationType[each[0]], each[1])):
        counts.setdefault(operation, {})[type_] = pairs[operation, type_]
    return counts


# ---- Vectors ----------------------------------------------------------------------------------------------


def count_vectors(backends: Sequence[Backend], folder: Path = SHARED / "vectors") -> dict[str, Counts]:
    """For each backend, operation and type the cases in whose models the backend takes it.

    Those whose execution must fail do not count. IF and WHILE are the driver's.
    """
    files = sorted(folder.glob("*/*.jsonl.gz"))
    if not files:
        raise SystemExit(f"there are no vectors in {folder}")
    counted: defaultdict[str, Counter[Pair]] = defaultdict(Counter)
    for case in (case for path in files for case in cases(path) if not case["expect_failure"]):
        for backend, taken in _taken(model_of(case), backends).items():
            counted[backend].update(taken)
    return {backend: _arranged(counts) for backend, counts in sorted(counted.items())}


def _taken(model: Model, backends: Sequence[Backend]) -> dict[str, set[Pair]]:
    """What each backend, and the driver itself, takes of a model."""
    found: defaultdict[str, set[Pair]] = defaultdict(set)
    for graph in graphs(model):
        for view in graph.operations:
            own = view.type not in SIGNATURES
            takers = [DRIVER] if own else [backend.id for backend in backends if backend.supports(view)]
            for taker in takers:
                found[taker].add(pair(view.type, [graph.operands[i].type for i in view.operation.inputs]))
    return found


# ---- Tests ------------------------------------------------------------------------------------------------


def count_tests(*arguments: str) -> dict[str, Counts]:
    """For each backend, operation and type the tests in which a device ran it there. Runs the tests.

    Args:
        arguments: what pytest is to run.
    """
    settings.register_profile("counting", derandomize=True)
    settings.load_profile("counting")
    recorder = Recorder()
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with recorder.watching():
        if pytest.main([*options, *arguments], plugins=[recorder]) != pytest.ExitCode.OK:
            raise SystemExit("the tests fail: nothing was counted")
    return recorder.counts()


class Recorder:
    """Notes which test runs which operation where; a plugin of pytest. `test`: the one that is running."""

    def __init__(self) -> None:
        self.test = ""
        self._seen: defaultdict[str, set[tuple[Pair, str]]] = defaultdict(set)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """A test begins."""
        self.test = item.nodeid

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Every backend, and the driver itself, tells what it runs."""
        with pytest.MonkeyPatch.context() as patch:
            for backend in registry.create(registry.ids()):
                patch.setattr(type(backend), "compile", self._recording(type(backend).compile))
            for node in (If, While):
                patch.setattr(node, "run", self._recording_node(node.run))
            yield

    def note(self, backend: str, view: OperationView) -> None:
        """The test that is running ran an operation."""
        types = [view.graph.operands[i].type for i in view.operation.inputs]
        self._seen[backend].add((pair(view.type, types), self.test))

    def counts(self) -> dict[str, Counts]:
        """What was noted."""
        return {backend: _arranged(Counter(each for each, _ in seen)) for backend, seen in sorted(self._seen.items())}

    def _recording(self, compile_: Callable[..., CompiledSubgraph]) -> Callable[..., CompiledSubgraph]:
        def recording(backend: Backend, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
            compiled = compile_(backend, subgraph, options)
            if backend.id not in registry.ids():
                return compiled  # one that a test made
            # tests look at what was compiled, so nothing is put around it; and nothing may keep it alive
            me, execute = weakref.ref(compiled), type(compiled).execute

            def noted(inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
                for view in subgraph.operations:
                    self.note(backend.id, view)
                execute(cast(CompiledSubgraph, me()), inputs, outputs, run)

            compiled.execute = noted  # type: ignore[method-assign]
            return compiled

        return recording

    def _recording_node(self, run: Callable[[Any, Frame, Progress], None]) -> Callable[[Any, Frame, Progress], None]:
        def recording(node: If | While, frame: Frame, progress: Progress) -> None:
            self.note(DRIVER, node.view)
            run(node, frame, progress)

        return recording
