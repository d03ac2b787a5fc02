"""Which backend runs which operations, and why.

Each operation goes to the first backend, in the device's order, that takes it. Operations that follow one another in
execution order on the same backend form a partition; since the order is topological, partitions never form a cycle. IF
and WHILE are run by the driver itself, each as a partition of its own, where all that they reach is placed.
"""

from collections.abc import Mapping, Sequence

from driver.backends.api import Backend
from driver.graph import Graph, OperationView, callees_first
from nnhal.types import OperationPlacement, OperationType, Partition, Placement, Refusal, operation_name

DRIVER = "driver"
"""What IF and WHILE have in place of a backend's id."""

CONTROL_FLOW = (OperationType.IF, OperationType.WHILE)


def place(graphs: Sequence[Graph], backends: Sequence[Backend]) -> Placement:
    """Places every operation of every subgraph that main reaches."""
    placed: dict[int, list[OperationPlacement]] = {}
    obstacles: dict[int, str] = {}
    for graph in callees_first(graphs):
        placed[graph.number] = [_place_operation(view, backends, obstacles) for view in graph.operations]
        missing = [operation for operation in placed[graph.number] if not operation.backend]
        obstacles[graph.number] = explain_refusal(missing[0]) if missing else ""
    operations = [operation for number in sorted(placed) for operation in placed[number]]
    return Placement(tuple(_partitions(operations)), tuple(operations))


def unplaced(placement: Placement) -> list[OperationPlacement]:
    """Operations of main that nobody takes."""
    return [operation for operation in placement.operations if operation.subgraph == 0 and not operation.backend]


def explain_refusal(operation: OperationPlacement) -> str:
    """Why nobody takes an operation, in one line."""
    where = "main" if operation.subgraph == 0 else f"referenced subgraph {operation.subgraph - 1}"
    reasons = "; ".join(f"{refusal.backend}: {refusal.reason}" for refusal in operation.refusals)
    return f"operation {operation.operation} of {where} ({operation_name(operation.type)}) is not supported: {reasons}"


def _place_operation(
    view: OperationView, backends: Sequence[Backend], obstacles: Mapping[int, str]
) -> OperationPlacement:
    where = (view.graph.number, view.index, view.type)
    if view.type in CONTROL_FLOW:
        obstacle = next((obstacles[i] for i in view.callees if obstacles[i]), "")
        return (
            OperationPlacement(*where, "", (Refusal(DRIVER, obstacle),))
            if obstacle
            else OperationPlacement(*where, DRIVER)
        )
    refusals: list[Refusal] = []
    for backend in backends:
        support = backend.supports(view)
        if support:
            return OperationPlacement(*where, backend.id, tuple(refusals))
        refusals.append(Refusal(backend.id, support.reason, support.nearest))
    return OperationPlacement(*where, "", tuple(refusals))


def _partitions(operations: Sequence[OperationPlacement]) -> list[Partition]:
    """Runs of operations of one subgraph on one backend."""
    runs: list[tuple[int, str, list[int]]] = []
    for operation in operations:
        where = (operation.subgraph, operation.backend)
        if runs and runs[-1][:2] == where and operation.type not in CONTROL_FLOW:
            runs[-1][2].append(operation.operation)
        elif operation.backend:
            runs.append((*where, [operation.operation]))
    return [Partition(subgraph, backend, tuple(indexes)) for subgraph, backend, indexes in runs]
