"""Compilation of a model: operations are placed, each partition is compiled by its backend, each subgraph once.

A backend may optimize a partition first (`nnhal_driver.compilation.optimization`). If a backend fails to compile a
partition or some of its operations, these are placed again on the backends after it. The rest stays as it is.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnhal.errors import HalError, general_failure
from nnhal.types import ErrorStatus, Partition, Placement
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.compilation.optimization import OperationsFailedError, optimize_and_compile
from nnhal_driver.compilation.placement import Placer, explain_refusal, partitions_by_subgraph
from nnhal_driver.execution.control_flow import control_flow_node
from nnhal_driver.execution.plan import PartitionNode, Plan
from nnhal_driver.graph import Graph, callees_first, subgraph_view, used_outside

_OUT_OF_MEMORY = (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT)

_log = logging.getLogger(__name__)


def place_and_compile(
    graphs: Sequence[Graph],
    backends: Sequence[Backend],
    options: CompileOptions,
    *,
    relaxed: bool,
    merge: bool = True,
) -> tuple[Placement, Plan]:
    """Place every operation and compile the partitions. Return the final placement, and the plan of main.

    Args:
        graphs: the subgraphs of the model, main first.
        backends: in order of preference.
        options: passed on to the backends. The check of them is called between steps.
        relaxed: whether TENSOR_FLOAT32 may be computed in half precision.
        merge: see Placer.

    Raises:
        HalError: GENERAL_FAILURE: no backend supports an operation; RESOURCE_EXHAUSTED_*: out of memory, and no other
            backend is left; or what `options.check` raises.
        MemoryError: out of memory twice, or no other backend is left.
    """
    placer = Placer(graphs, backends, merge=merge)
    compiler = PartitionCompiler(graphs, backends, options, relaxed)
    while True:
        options.check()
        placement = placer.place()
        missing = next((each for each in placement.operations if each.subgraph == 0 and not each.backend), None)
        if missing is not None:
            raise compiler.memory_error or placer.memory_error or general_failure(explain_refusal(graphs, missing))
        failures = compiler.compile(placement.partitions)
        if not failures:
            return placement, _build_plan(graphs, placement, compiler.nodes)
        for partition, reason in failures.items():
            placer.exclude(partition, reason)


class PartitionCompiler:
    """Compiler of the partitions of one model. It compiles each partition once, however often others are placed again.

    `memory_error`: the error of a backend that ran out of memory, or None.
    """

    def __init__(
        self, graphs: Sequence[Graph], backends: Sequence[Backend], options: CompileOptions, relaxed: bool
    ) -> None:
        self.nodes: dict[Partition, PartitionNode] = {}
        self.memory_error: Exception | None = None
        self._graphs = graphs
        self._backends = {backend.id: backend for backend in backends}
        self._options = options
        self._relaxed = relaxed

    def compile(self, partitions: Sequence[Partition]) -> dict[Partition, str]:
        """Compile the new ones among partitions, and free those that are no longer needed.

        Returns:
            the partitions or single operations that failed, with the reason.

        Raises:
            HalError: what the check of the options raises.
            MemoryError: out of memory for the second time.
        """
        self.nodes = {partition: self.nodes[partition] for partition in partitions if partition in self.nodes}
        failures: dict[Partition, str] = {}
        for partition in partitions:
            if partition.backend in self._backends and partition not in self.nodes:
                self._options.check()
                failures |= self._compile(partition)
        return failures

    def _compile(self, partition: Partition) -> dict[Partition, str]:
        """Compile a partition. Return the parts that its backend fails to compile, with the reason."""
        graph = self._graphs[partition.subgraph]
        view = subgraph_view(graph, partition.operations, self._relaxed)
        try:
            compiled = optimize_and_compile(self._backends[partition.backend], view, self._options)
        except OperationsFailedError as error:
            return {replace(partition, operations=(i,)): reason for i, reason in error.reasons.items()}
        except Exception as error:
            self._options.check()  # a backend that was told to end may raise anything
            self._raise_if_final(error)
            reason = error.reason if isinstance(error, HalError) else f"{type(error).__name__}: {error}"
            count = len(partition.operations)
            _log.warning("%s fails to compile %d operations of %s: %s", partition.backend, count, graph.name, reason)
            return {partition: f"it failed to compile this: {reason}"}
        used_later = frozenset(used_outside(graph, view.operations))
        self.nodes[partition] = PartitionNode(partition.backend, view, compiled, used_later)
        return {}

    def _raise_if_final(self, error: Exception) -> None:
        """Raise an error again if another backend cannot help.

        The first time that memory runs out, another backend may need less. The second time, the machine has too little.
        """
        status = error.status if isinstance(error, HalError) else None
        # a client that has reached a limit is told, instead of getting a slower model that needs less
        is_of_client = isinstance(error, HalError) and error.limit not in ("", "tensor_bytes")
        if is_of_client:
            raise error
        if isinstance(error, MemoryError) or status in _OUT_OF_MEMORY:
            if self.memory_error:
                raise error
            self.memory_error = error.with_traceback(None)  # whose frames refer to this object


def _build_plan(graphs: Sequence[Graph], placement: Placement, compiled: Mapping[Partition, PartitionNode]) -> Plan:
    """Return the plan of main, with the plans of all subgraphs that it reaches."""
    partitions = partitions_by_subgraph(placement)
    plans: dict[int, Plan] = {}
    for graph in callees_first(graphs):
        nodes = (
            compiled.get(partition) or control_flow_node(graph.operations[partition.operations[0]], plans)
            for partition in partitions[graph.number]
        )
        plans[graph.number] = Plan(graph, tuple(nodes))
    return plans[0]
