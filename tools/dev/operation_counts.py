"""Counts of test vectors and of tests for each backend, operation and operand type.

The counts are committed in `tests/data`, so that the table of operations can be generated without the vectors:
{backend: {operation: {operand type: count}}}.
"""

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import settings

from nnhal.operations import SIGNATURES
from nnhal.types import AnyArray, Model, OperandType, OperationType
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend, CompiledSubgraph, CompileOptions, Output, Run, SubgraphView
from nnhal_driver.compilation.operation_support import leading_input
from nnhal_driver.execution.control_flow import If, While
from nnhal_driver.execution.plan import RunContext, SubgraphValues
from nnhal_driver.graph import OperationView, build_graphs
from tests.driver.validation.vector_models import cases, model_of
from tests.shared import SHARED

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
DRIVER = "driver"
"""Takes the place of a backend for IF and WHILE, which the driver runs itself."""

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
"""Names of operand types in the table. A scalar counts as a tensor."""

Counts: TypeAlias = dict[str, dict[str, int]]
Pair: TypeAlias = tuple[str, str]
"""An operation and an operand type, by name."""


def count_key(type_: int, inputs: Sequence[int]) -> Pair:
    """Return the key under which an operation is counted. IF and WHILE count as bool, the type of their condition."""
    leading = inputs[leading_input(type_)] if type_ in SIGNATURES else OperandType.TENSOR_BOOL8
    return OperationType(type_).name, TYPES[OperandType(leading)]


def _sorted_counts(pairs: Counter[Pair]) -> Counts:
    counts: Counts = {}
    for operation, type_ in sorted(pairs, key=lambda key: (OperationType[key[0]], key[1])):
        counts.setdefault(operation, {})[type_] = pairs[operation, type_]
    return counts


# ---- Vectors ----------------------------------------------------------------------------------------------


def count_vectors(backends: Sequence[Backend], folder: Path = SHARED / "vectors") -> dict[str, Counts]:
    """Count the vectors in which each backend supports an operation, by operation and type.

    Vectors whose execution must fail do not count. IF and WHILE are counted for the driver.
    """
    files = sorted(folder.glob("*/*.jsonl.gz"))
    if not files:
        raise SystemExit(f"no vectors in {folder}")
    counted: defaultdict[str, Counter[Pair]] = defaultdict(Counter)
    for case in (case for path in files for case in cases(path) if not case["expect_failure"]):
        for backend, pairs in _accepted_pairs(model_of(case), backends).items():
            counted[backend].update(pairs)
    return {backend: _sorted_counts(counts) for backend, counts in sorted(counted.items())}


def _accepted_pairs(model: Model, backends: Sequence[Backend]) -> dict[str, set[Pair]]:
    """Return the operations of a model that each backend, and the driver itself, supports."""
    accepted: defaultdict[str, set[Pair]] = defaultdict(set)
    for graph in build_graphs(model):
        for view in graph.operations:
            by_driver = view.type not in SIGNATURES
            runners = [DRIVER] if by_driver else [backend.id for backend in backends if backend.supports(view)]
            for runner in runners:
                accepted[runner].add(count_key(view.type, [graph.operands[i].type for i in view.operation.inputs]))
    return accepted


# ---- Tests ------------------------------------------------------------------------------------------------


def count_tests(*arguments: str) -> dict[str, Counts]:
    """Run tests, and count for each backend, operation and type the tests in which the backend ran it.

    Args:
        *arguments: arguments for pytest that select the tests.
    """
    settings.register_profile("counting", derandomize=True)
    settings.load_profile("counting")
    recorder = Recorder()
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with recorder.watching():
        if pytest.main([*options, *arguments], plugins=[recorder]) != pytest.ExitCode.OK:
            raise SystemExit("tests failed; the counts were not updated")
    return recorder.counts()


class Recorder:
    """Plugin of pytest that records which test runs which operation on which backend.

    Attributes:
        test: id of the test that is running.
    """

    def __init__(self) -> None:
        self.test = ""
        self._seen: defaultdict[str, set[tuple[Pair, str]]] = defaultdict(set)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Set the running test."""
        self.test = item.nodeid

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the operations that backends and the driver run inside the context."""
        with pytest.MonkeyPatch.context() as patch:
            for backend in registry.create(registry.registered_ids()):
                patch.setattr(type(backend), "compile", self._recording(type(backend).compile))
            for node in (If, While):
                patch.setattr(node, "run", self._recording_node(node.run))
            yield

    def note(self, backend: str, view: OperationView) -> None:
        """Record that the running test ran an operation."""
        types = [view.graph.operands[i].type for i in view.operation.inputs]
        self._seen[backend].add((count_key(view.type, types), self.test))

    def counts(self) -> dict[str, Counts]:
        """Return the numbers of recorded tests."""
        return {
            backend: _sorted_counts(Counter(key for key, _ in seen)) for backend, seen in sorted(self._seen.items())
        }

    def _recording(self, compile_: Callable[..., CompiledSubgraph]) -> Callable[..., CompiledSubgraph]:
        def recording(backend: Backend, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
            compiled = compile_(backend, subgraph, options)
            if backend.id not in registry.registered_ids():
                return compiled  # a backend that a test defines
            # tests inspect compiled subgraphs, so they are not wrapped; the weak reference does not keep them alive
            reference, execute = weakref.ref(compiled), type(compiled).execute

            def recording_execute(inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
                for view in subgraph.operations:
                    self.note(backend.id, view)
                execute(cast(CompiledSubgraph, reference()), inputs, outputs, run)

            compiled.execute = recording_execute  # type: ignore[method-assign]
            return compiled

        return recording

    def _recording_node(
        self, run: Callable[[Any, SubgraphValues, RunContext], None]
    ) -> Callable[[Any, SubgraphValues, RunContext], None]:
        def recording(node: If | While, frame: SubgraphValues, progress: RunContext) -> None:
            self.note(DRIVER, node.view)
            run(node, frame, progress)

        return recording
