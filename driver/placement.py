"""Which backend runs which operations, and why.

Each operation goes to the first backend, in the device's order, that takes it. Operations that follow one another in
execution order on the same backend form a partition; since the order is topological, partitions never form a cycle.
"""

from collections.abc import Sequence

from driver.backends.api import Backend
from driver.graph import Graph, OperationView
from nnhal.types import OperationPlacement, Partition, Placement, Refusal, operation_name


def place(graphs: Sequence[Graph], backends: Sequence[Backend]) -> Placement:
    """Places every operation of every subgraph."""
    operations = [_place_operation(view, backends) for graph in graphs for view in graph.operations]
    return Placement(tuple(_partitions(operations)), tuple(operations))


def unplaced(placement: Placement) -> list[OperationPlacement]:
    """Operations that no backend takes."""
    return [operation for operation in placement.operations if not operation.backend]


def explain_refusal(operation: OperationPlacement) -> str:
    """Why nobody takes an operation, in one line."""
    where = "main" if operation.subgraph == 0 else f"referenced subgraph {operation.subgraph - 1}"
    reasons = "; ".join(f"{refusal.backend}: {refusal.reason}" for refusal in operation.refusals)
    return f"operation {operation.operation} of {where} ({operation_name(operation.type)}) is not supported: {reasons}"


def _place_operation(view: OperationView, backends: Sequence[Backend]) -> OperationPlacement:
    refusals: list[Refusal] = []
    for backend in backends:
        support = backend.supports(view)
        if support:
            return OperationPlacement(view.graph.number, view.index, view.type, backend.id, tuple(refusals))
        refusals.append(Refusal(backend.id, support.reason, support.nearest))
    return OperationPlacement(view.graph.number, view.index, view.type, "", tuple(refusals))


def _partitions(operations: Sequence[OperationPlacement]) -> list[Partition]:
    out: list[Partition] = []
    for operation in operations:
        if not operation.backend:
            continue
        last = out[-1] if out else None
        if last and (last.subgraph, last.backend) == (operation.subgraph, operation.backend):
            out[-1] = Partition(last.subgraph, last.backend, (*last.operations, operation.operation))
        else:
            out.append(Partition(operation.subgraph, operation.backend, (operation.operation,)))
    return out
