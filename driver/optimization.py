"""Compiles a subgraph as its backend has optimised it: substitutions run among parts that it left untouched."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OptimizedSubgraph,
    Output,
    Run,
    SubgraphView,
)
from driver.graph import read_outside
from driver.hosting import hosted
from driver.plan import Frame, Step
from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorStatus


class OperationsFailedError(HalError):
    """A backend will not run some operations after all.

    Attributes:
        reasons: why, by the operation's index.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        text = "; ".join(f"operation {index}: {reason}" for index, reason in reasons.items())
        super().__init__(ErrorStatus.GENERAL_FAILURE, text)
        self.reasons = reasons


def compiled_by(backend: Backend, view: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
    """A subgraph, optimised and compiled.

    Raises:
        OperationsFailedError: others may run these operations; nothing was compiled.
        HalError: it cannot be compiled. Backends may raise anything else.
    """
    made = backend.optimize(view, options)
    _check(backend, view, made)
    if made.failed:
        raise OperationsFailedError(made.failed)
    if not made.substitutions:
        return hosted(backend, lambda: backend.compile(view, options))
    replaced = {i: one.compiled for one in made.substitutions for i in one.operations}
    steps, substituted = [], set()
    for number, operations in enumerate(_units(backend, view, [one.operations for one in made.substitutions])):
        part = view.part(operations)
        substitute = replaced.get(operations[0])
        compiled = _part(backend, part, options, substitute)
        steps.append(Step(backend.id, part, compiled, frozenset(read_outside(view.graph, part.operations))))
        if substitute is not None:
            substituted.add(number)
    return Composite(view, steps, substituted)


def _part(
    backend: Backend, view: SubgraphView, options: CompileOptions, substitute: CompiledSubgraph | None
) -> CompiledSubgraph:
    return hosted(backend, lambda: substitute or backend.compile(view, options))


def _check(backend: Backend, view: SubgraphView, made: OptimizedSubgraph) -> None:
    """Refuses an answer that is about other operations, or about one twice."""
    named = [*made.failed, *(i for one in made.substitutions for i in one.operations)]
    own = {operation.index for operation in view.operations}
    empty = any(not one.operations for one in made.substitutions)
    if empty or len(set(named)) < len(named) or not own.issuperset(named):
        raise general_failure(
            f"backend {backend.id}: optimize must name operations of the subgraph, each once: {named}"
        )


def _units(backend: Backend, view: SubgraphView, replaced: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """The operations in an order of execution: those of each substitution, and untouched ones, many at a time.

    Raises:
        HalError: operations that are substituted cannot run as a unit.
    """
    groups = _groups(view, replaced)
    waits, readers = _links(view, groups)
    order: list[int] = []
    untouched = [number for number, count in waits.items() if count == 0 and number < 0]
    ready = [number for number, count in waits.items() if count == 0 and number >= 0]
    while untouched or ready:
        number = untouched.pop() if untouched else ready.pop()
        order.append(number)
        for reader in readers[number]:
            waits[reader] -= 1
            if waits[reader] == 0:
                (untouched if reader < 0 else ready).append(reader)
    if len(order) < len(waits):
        stuck = [list(replaced[number]) for number, count in waits.items() if count and number >= 0]
        raise general_failure(
            f"backend {backend.id}: operations {stuck[0]} cannot be substituted as a unit: a way from one to another "
            "leads through operations that are not among them"
        )
    members: dict[int, list[int]] = defaultdict(list)
    for index, number in groups.items():
        members[number].append(index)
    runs = groupby(order, key=lambda number: max(number, -1))
    return [[index for number in numbers for index in members[number]] for _, numbers in runs]


def _groups(view: SubgraphView, replaced: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """For each operation, in order, the number of its substitution, or a negative number of its own."""
    numbers = {index: number for number, operations in enumerate(replaced) for index in operations}
    return {operation.index: numbers.get(operation.index, -1 - operation.index) for operation in view.operations}


def _links(view: SubgraphView, groups: Mapping[int, int]) -> tuple[dict[int, int], Mapping[int, set[int]]]:
    """For each group how many others it needs, and which need it."""
    writers = {o: groups[operation.index] for operation in view.operations for o in operation.operation.outputs}
    readers: dict[int, set[int]] = defaultdict(set)
    for operation in view.operations:
        number = groups[operation.index]
        for source in (writers[o] for o in operation.operation.inputs if o in writers):
            if source != number:
                readers[source].add(number)
    waits = dict.fromkeys(groups.values(), 0)
    for needing in readers.values():
        for number in needing:
            waits[number] += 1
    return waits, readers


class Composite(CompiledSubgraph):
    """Parts of a subgraph, one after the other. The cache keeps them one by one (`driver.caching.model`).

    Attributes:
        steps: the parts.
        substituted: which of them stand in place of operations, and can only come from `optimize` or from the cache.
    """

    def __init__(self, view: SubgraphView, steps: Sequence[Step], substituted: Collection[int] = ()) -> None:
        self.steps = steps
        self.substituted = substituted
        self._view = view

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Runs every part."""
        given = zip(self._view.inputs, inputs, strict=True)
        frame = Frame(self._view.graph, dict(given), dict(zip(self._view.outputs, outputs, strict=True)))
        for step in self.steps:
            run.check()
            step.run(frame, run)
