"""From a placed model to its plan: each partition is compiled by its backend, each subgraph once."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from driver.backends.api import Backend, CompileOptions
from driver.control_flow import If, While
from driver.graph import Graph, OperationView, callees, callees_first, read_outside, subgraph_view
from driver.placement import explain_refusal, place, unplaced
from driver.plan import Node, Plan, Step
from nnhal.errors import general_failure
from nnhal.types import OperationType, Partition, Placement

MAX_NESTING = 64
"""Deepest nesting of IF and WHILE that a plan may have: running it takes the stack of a thread."""

Plans = Mapping[int, Plan]
"""Plans of subgraphs, by their number."""


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
        the placement and the plan of main.

    Raises:
        HalError: GENERAL_FAILURE: no backend takes an operation, or a partition cannot be compiled.
    """
    placement = place(graphs, backends)
    if missing := unplaced(placement):
        raise general_failure(explain_refusal(missing[0]))
    compiler = Compiler({backend.id: backend for backend in backends}, options, relaxed, check)
    return placement, compiler.compile(graphs, placement)


@dataclass(frozen=True)
class Compiler:
    """Compiles models.

    Attributes:
        backends: by id.
        relaxed: TENSOR_FLOAT32 may be computed in half precision.
        check: called between partitions; raises to end the preparation.
    """

    backends: Mapping[str, Backend]
    options: CompileOptions
    relaxed: bool
    check: Callable[[], None]

    def compile(self, graphs: Sequence[Graph], placement: Placement) -> Plan:
        """The plan of main and of all that it reaches.

        Raises:
            HalError: a partition cannot be compiled, or control flow is nested too deep.
        """
        partitions: dict[int, list[Partition]] = defaultdict(list)
        for one in placement.partitions:
            partitions[one.subgraph].append(one)
        plans: dict[int, Plan] = {}
        depths: dict[int, int] = {}
        for graph in callees_first(graphs):
            depths[graph.number] = 1 + max((depths[i] for i in callees(graph)), default=0)
            if depths[graph.number] > MAX_NESTING:
                raise general_failure(f"IF and WHILE are nested more than {MAX_NESTING} deep")
            nodes = tuple(self._node(graph, one, plans) for one in partitions[graph.number])
            plans[graph.number] = Plan(graph, nodes)
        return plans[0]

    def _node(self, graph: Graph, partition: Partition, plans: Plans) -> Node:
        self.check()
        first = graph.operations[partition.operations[0]]
        if first.type in _CONTROL_FLOW:
            return _CONTROL_FLOW[first.type](first, plans)
        view = subgraph_view(graph, partition.operations, self.relaxed)
        compiled = self.backends[partition.backend].compile(view, self.options)
        return Step(view, compiled, frozenset(read_outside(graph, view.operations)))


def _if(view: OperationView, plans: Plans) -> Node:
    then, otherwise = (plans[i] for i in view.callees)
    return If(view, then, otherwise)


def _while(view: OperationView, plans: Plans) -> Node:
    condition, body = (plans[i] for i in view.callees)
    return While(view, condition, body)


_CONTROL_FLOW: dict[int, Callable[[OperationView, Plans], Node]] = {
    OperationType.IF: _if,
    OperationType.WHILE: _while,
}
