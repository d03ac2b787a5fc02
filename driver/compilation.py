"""From a graph to its plan: operations are placed, each partition is compiled by its backend, each subgraph once.

Before that the backend may optimise it (`driver.optimization`). A part that its backend fails to compile, or operations
that it will not run after all, are placed again, on the backends after it; the rest stays as it is.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from driver.backends.api import Backend, CompileOptions
from driver.control_flow import control_flow_node
from driver.graph import Graph, callees_first, read_outside, subgraph_view
from driver.optimization import OperationsFailedError, compiled_by
from driver.placement import Placer, explain_refusal, unplaced
from driver.plan import Node, Plan, Step
from nnhal.errors import HalError, general_failure
from nnhal.types import ErrorStatus, Partition, Placement

_TOO_LATE = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
_NO_MEMORY = (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT)

_log = logging.getLogger(__name__)


def place_and_compile(
    graphs: Sequence[Graph],
    backends: Sequence[Backend],
    options: CompileOptions,
    *,
    relaxed: bool,
    check: Callable[[], None],
) -> tuple[Placement, Plan]:
    """Places every operation and compiles what was placed.

    Args:
        backends: in order of preference.
        relaxed: TENSOR_FLOAT32 may be computed in half precision.
        check: called between partitions; raises to end the preparation.

    Returns:
        the placement, as it is after all that failed was placed again; and the plan of main.

    Raises:
        HalError: GENERAL_FAILURE: no backend takes an operation;
            RESOURCE_EXHAUSTED_*: memory was short, and no other backend is left; or what `check` raises.
        MemoryError: memory was short twice, or no other backend is left.
    """
    placer = Placer(graphs, backends)
    compiler = Compiler(graphs, backends, options, relaxed, check)
    while True:
        placement = placer.place()
        if missing := unplaced(placement):
            raise compiler.short_of_memory or general_failure(explain_refusal(missing[0]))
        failures = compiler.compile(placement.partitions)
        if not failures:
            return placement, _plan(graphs, placement, compiler.steps)
        for partition, reason in failures.items():
            placer.refuse(partition, reason)


class Compiler:
    """Compiles the partitions of one model, each once however often the rest is placed anew.

    Attributes:
        steps: what has been compiled.
        short_of_memory: the error of a backend that had not enough memory.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        backends: Sequence[Backend],
        options: CompileOptions,
        relaxed: bool,
        check: Callable[[], None],
    ) -> None:
        self.steps: dict[Partition, Step] = {}
        self.short_of_memory: Exception | None = None
        self._graphs = graphs
        self._backends = {backend.id: backend for backend in backends}
        self._options = options
        self._relaxed = relaxed
        self._check = check

    def compile(self, partitions: Sequence[Partition]) -> dict[Partition, str]:
        """Compiles what is new among partitions, and lets go of what is not among them.

        Returns:
            those that failed, or their operations that did, with the reason.

        Raises:
            HalError: what `check` raises, or a backend that sees a deadline pass.
            MemoryError: memory was short for the second time.
        """
        self.steps = {one: self.steps[one] for one in partitions if one in self.steps}
        failures: dict[Partition, str] = {}
        for partition in partitions:
            if partition.backend in self._backends and partition not in self.steps:
                self._check()
                failures |= self._try(partition)
        return failures

    def _try(self, partition: Partition) -> dict[Partition, str]:
        """Compiles a partition; gives what of it its backend fails to compile, with the reason."""
        graph = self._graphs[partition.subgraph]
        view = subgraph_view(graph, partition.operations, self._relaxed)
        try:
            compiled = compiled_by(self._backends[partition.backend], view, self._options)
        except OperationsFailedError as error:
            return {replace(partition, operations=(i,)): reason for i, reason in error.reasons.items()}
        except Exception as error:
            self._judge(error)
            reason = error.reason if isinstance(error, HalError) else f"{type(error).__name__}: {error}"
            count = len(partition.operations)
            _log.warning("%s fails to compile %d operations of %s: %s", partition.backend, count, graph.name, reason)
            return {partition: f"it failed to compile this: {reason}"}
        self.steps[partition] = Step(partition.backend, view, compiled, frozenset(read_outside(graph, view.operations)))
        return {}

    def _judge(self, error: Exception) -> None:
        """Passes an error on that no other backend can mend.

        The first time that memory is short another backend may need less; the second time it is the machine's.
        """
        status = error.status if isinstance(error, HalError) else None
        if status in _TOO_LATE:
            raise error
        if isinstance(error, MemoryError) or status in _NO_MEMORY:
            if self.short_of_memory:
                raise error
            self.short_of_memory = error


def _plan(graphs: Sequence[Graph], placement: Placement, steps: Mapping[Partition, Step]) -> Plan:
    """The plan of main, and of all that it reaches."""
    partitions: dict[int, list[Partition]] = defaultdict(list)
    for one in placement.partitions:
        partitions[one.subgraph].append(one)
    plans: dict[int, Plan] = {}
    for graph in callees_first(graphs):
        nodes = (steps.get(one) or _control_flow(graph, one, plans) for one in partitions[graph.number])
        plans[graph.number] = Plan(graph, tuple(nodes))
    return plans[0]


def _control_flow(graph: Graph, partition: Partition, plans: Mapping[int, Plan]) -> Node:
    return control_flow_node(graph.operations[partition.operations[0]], plans)
