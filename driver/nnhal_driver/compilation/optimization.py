"""Compilation of a subgraph as its backend has optimized it: substitutions run among parts that it left unchanged."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorStatus
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Output,
    Run,
    SubgraphView,
)
from nnhal_driver.backends.boundary.isolation import isolated
from nnhal_driver.backends.boundary.subgraphs import check_compiled, compile_subgraph, optimize_subgraph
from nnhal_driver.backends.deferral import DeferringRun
from nnhal_driver.backends.device_memory import DeviceValue
from nnhal_driver.compilation.backend_hooks import with_hooks
from nnhal_driver.execution.plan import PartitionNode, SubgraphValues
from nnhal_driver.graph import used_outside


class OperationsFailedError(HalError):
    """Error for operations that a backend turns out not to run. `reasons`: by the operation's index."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        text = "; ".join(f"operation {index}: {reason}" for index, reason in reasons.items())
        super().__init__(ErrorStatus.GENERAL_FAILURE, text)
        self.reasons = reasons


def optimize_and_compile(backend: Backend, view: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
    """Optimize and compile a subgraph.

    Raises:
        OperationsFailedError: other backends may run these operations; nothing was compiled.
        HalError: the subgraph cannot be compiled.
        MemoryError: there is not enough memory.
    """
    return isolated(backend, "compile", lambda: _optimize_and_compile(backend, view, options))


def _optimize_and_compile(backend: Backend, view: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
    optimized = optimize_subgraph(backend, view, options)
    if optimized.failed:
        raise OperationsFailedError(optimized.failed)
    options.check()
    if not optimized.substitutions:
        return with_hooks(backend, view, options, lambda: compile_subgraph(backend, view, options))
    substitutes = {i: entry.compiled for entry in optimized.substitutions for i in entry.operations}
    nodes, substituted = [], set()
    units = _units_in_order(backend, view, [entry.operations for entry in optimized.substitutions])
    for number, operations in enumerate(units):
        options.check()
        part = view.part(operations)
        substitute = substitutes.get(operations[0])
        compiled = with_hooks(backend, part, options, partial(_make_part, backend, part, options, substitute))
        nodes.append(PartitionNode(backend.id, part, compiled, frozenset(used_outside(view.graph, part.operations))))
        if substitute is not None:
            substituted.add(number)
    return CompositeSubgraph(view, nodes, substituted)


def _make_part(
    backend: Backend, part: SubgraphView, options: CompileOptions, substitute: CompiledSubgraph | None
) -> CompiledSubgraph:
    if substitute is None:
        return compile_subgraph(backend, part, options)
    return check_compiled(backend, "optimize", part, substitute)


def _units_in_order(backend: Backend, view: SubgraphView, substituted: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return an order of execution: the operations of each substitution, and as many unchanged ones as possible."""
    # for each operation, in order, the number of its substitution, or a negative number of its own
    numbers = {index: number for number, operations in enumerate(substituted) for index in operations}
    groups = {operation.index: numbers.get(operation.index, -1 - operation.index) for operation in view.operations}
    waits, readers = _links(view, groups)
    order: list[int] = []
    unchanged = [number for number, count in waits.items() if count == 0 and number < 0]
    ready = [number for number, count in waits.items() if count == 0 and number >= 0]
    while unchanged or ready:
        number = unchanged.pop() if unchanged else ready.pop()
        order.append(number)
        for reader in readers[number]:
            waits[reader] -= 1
            if waits[reader] == 0:
                (unchanged if reader < 0 else ready).append(reader)
    if len(order) < len(waits):
        stuck = [list(substituted[number]) for number, count in waits.items() if count and number >= 0]
        raise general_failure(
            f"backend {backend.id}: operations {stuck[0]} cannot be substituted as a unit: a way from one to another "
            "leads through operations that are not among them"
        )
    members: dict[int, list[int]] = defaultdict(list)
    for index, number in groups.items():
        members[number].append(index)
    runs = groupby(order, key=lambda number: max(number, -1))
    return [[index for number in numbers for index in members[number]] for _, numbers in runs]


def _links(view: SubgraphView, groups: Mapping[int, int]) -> tuple[dict[int, int], Mapping[int, set[int]]]:
    """Return for each group the number of groups that it depends on, and the groups that depend on it."""
    writers = {o: groups[operation.index] for operation in view.operations for o in operation.operation.outputs}
    readers: dict[int, set[int]] = defaultdict(set)
    for operation in view.operations:
        number = groups[operation.index]
        for source in (writers[o] for o in operation.operation.inputs if o in writers):
            if source != number:
                readers[source].add(number)
    waits = dict.fromkeys(groups.values(), 0)
    for dependents in readers.values():
        for number in dependents:
            waits[number] += 1
    return waits, readers


class CompositeSubgraph(CompiledSubgraph):
    """Parts of a subgraph that run one after the other. The model cache stores them one by one.

    Attributes:
        substituted: numbers of the parts that replace operations. Only `optimize` or the cache can provide these.
    """

    def __init__(self, view: SubgraphView, nodes: Sequence[PartitionNode], substituted: Collection[int] = ()) -> None:
        self.nodes = nodes
        self.substituted = substituted
        self._view = view
        ends = [(node.view.inputs, node.view.outputs) for node in nodes]
        self._only = nodes[0].compiled if ends == [(view.inputs, view.outputs)] else None
        if self._only is not None:
            self.copies_inputs, self.layouts = self._only.copies_inputs, self._only.layouts
            self.device_operands = self._only.device_operands

    def execute(self, inputs: Sequence[Any], outputs: Sequence[Output], run: Run) -> None:
        """Run every part."""
        if self._only is not None:
            self._only.execute(inputs, outputs, run)
            return
        input_values: dict[int, AnyArray | DeviceValue | None] = dict(zip(self._view.inputs, inputs, strict=True))
        output_values = dict(zip(self._view.outputs, outputs, strict=True))
        finish = run.finish if isinstance(run, DeferringRun) else lambda: None
        values = SubgraphValues(self._view.graph, input_values, output_values, finish)
        for node in self.nodes:
            run.check()
            node.run(values, run)
