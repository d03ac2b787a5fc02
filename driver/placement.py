"""Which backend runs which operations, and why.

Each operation goes to the first backend, in the device's order, that takes it. What is connected on one backend forms a
partition (`driver.regions`). A partition that does not pay for its boundary (`driver.cost`) moves to the backend of a
neighbour that takes all of it, so that the two become one. IF and WHILE are run by the driver itself, each as a
partition of its own; the subgraphs that they run are placed in the same way.
"""

import logging
from collections.abc import Mapping, Sequence

from driver.backends.api import Backend, Support
from driver.cost import does_not_pay
from driver.extension_types import ExtensionTypes, extension_types
from driver.graph import Graph, OperationView, callees, callees_first
from driver.regions import Flow, Regions
from nnhal.types import (
    OperandLifeTime,
    OperationPlacement,
    OperationType,
    Partition,
    Placement,
    Refusal,
    is_extension,
    operation_name,
)

DRIVER = "driver"
"""What IF and WHILE have in place of a backend's id."""

CONTROL_FLOW = (OperationType.IF, OperationType.WHILE)

MAX_NESTING = 64
"""Deepest nesting of IF and WHILE that a plan may have: running it takes the stack of a thread."""

_ENDS = (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT)

_log = logging.getLogger(__name__)


def place(graphs: Sequence[Graph], backends: Sequence[Backend]) -> Placement:
    """Places every operation of every subgraph that main reaches."""
    return Placer(graphs, backends).place()


def unplaced(placement: Placement) -> list[OperationPlacement]:
    """Operations of main that nobody takes."""
    return [operation for operation in placement.operations if operation.subgraph == 0 and not operation.backend]


def explain_refusal(operation: OperationPlacement) -> str:
    """Why nobody takes an operation, in one line."""
    where = "main" if operation.subgraph == 0 else f"referenced subgraph {operation.subgraph - 1}"
    reasons = "; ".join(f"{refusal.backend}: {refusal.reason}" for refusal in operation.refusals)
    return f"operation {operation.operation} of {where} ({operation_name(operation.type)}) is not supported: {reasons}"


class Placer:
    """Places one model, and places parts of it again when a backend turns out not to run them.

    Each backend is asked about each operation once at most.

    Args:
        graphs: the subgraphs of the model, main first.
        backends: in order of preference.
    """

    def __init__(self, graphs: Sequence[Graph], backends: Sequence[Backend]) -> None:
        self._ids = [backend.id for backend in backends]
        self._parts: dict[int, _Part] = {}
        self._depths: dict[int, int] = {}
        for graph in callees_first(graphs):
            self._parts[graph.number] = _Part(graph, backends)
            self._depths[graph.number] = 1 + max((self._depths[i] for i in callees(graph)), default=0)

    def place(self) -> Placement:
        """The placement, as far as is known by now."""
        obstacles: dict[int, str] = {}
        operations: dict[int, list[OperationPlacement]] = {}
        partitions: dict[int, list[Partition]] = {}
        for number, part in self._parts.items():
            operations[number], partitions[number] = part.place(obstacles)
            obstacles[number] = self._obstacle(number, operations[number])
        order = sorted(self._parts)
        return Placement(
            tuple(one for number in order for one in partitions[number]),
            tuple(one for number in order for one in operations[number]),
        )

    def _obstacle(self, number: int, operations: Sequence[OperationPlacement]) -> str:
        """Why an IF or WHILE cannot run a subgraph, or "". It names the operation at the bottom of it all."""
        if self._depths[number] >= MAX_NESTING:
            return f"IF and WHILE are nested more than {MAX_NESTING} deep"
        missing = next((operation for operation in operations if not operation.backend), None)
        if missing is None:
            return ""
        return missing.refusals[0].reason if missing.type in CONTROL_FLOW else explain_refusal(missing)

    def refuse(self, partition: Partition, reason: str) -> None:
        """The backend of a partition does not run its operations after all: the next `place` gives them to others."""
        part, backend = self._parts[partition.subgraph], self._ids.index(partition.backend)
        for i in partition.operations:
            part.answers[i][backend] = Support(reason)


class _Part:
    """One subgraph.

    Attributes:
        answers: for each operation what each backend said of it, by the backend's number.
    """

    def __init__(self, graph: Graph, backends: Sequence[Backend]) -> None:
        self._graph = graph
        self._backends = backends
        self._flow = Flow(graph)
        self.answers: list[dict[int, Support]] = [{} for _ in graph.operations]
        offered = (one for backend in backends for one in backend.extensions()) if graph.extensions else ()
        self._extension_types = extension_types(graph.extensions, offered)

    def place(self, obstacles: Mapping[int, str]) -> tuple[list[OperationPlacement], list[Partition]]:
        """Operations in the model's order, partitions in an order of execution.

        Args:
            obstacles: for each subgraph that this one may run why nobody takes all of it, or "".
        """
        labels = [self._first(view) for view in self._graph.operations]
        regions = Regions(self._flow, labels)
        merged = self._merge(regions)
        operations = [
            self._describe(view, regions.label(view.index), merged, obstacles) for view in self._graph.operations
        ]
        partitions = []
        for region in regions.in_order():
            if backend := operations[region[0]].backend:
                partitions.append(Partition(self._graph.number, backend, region))
        return operations, partitions

    def _takes(self, view: OperationView, backend: int) -> Support:
        answers = self.answers[view.index]
        if backend not in answers:
            unfit = _unfit(view, self._extension_types)
            answers[backend] = Support(unfit) if unfit else _ask(self._backends[backend], view)
        return answers[backend]

    def _first(self, view: OperationView) -> int:
        """The number of the first backend that takes an operation; without one, a number of the operation's own."""
        numbers = () if view.type in CONTROL_FLOW else range(len(self._backends))
        return next((number for number in numbers if self._takes(view, number)), -1 - view.index)

    def _merge(self, regions: Regions) -> dict[tuple[int, int], str]:
        """Moves regions that do not pay for their boundary to the backend of a neighbour.

        Returns:
            for each operation and backend that it is kept from: why.
        """
        merged: dict[tuple[int, int], str] = {}
        for members in regions.in_order():
            label = regions.label(members[0])
            as_it_was = regions.size(members[0]) == len(members)
            if not as_it_was or label not in range(len(self._backends) - 1):
                continue
            reason = does_not_pay(self._graph, members)
            target = self._target(regions, members) if reason else None
            if target is not None:
                regions.relabel(members[0], target)
                merged |= {(i, passed): f"merged: {reason}" for i in members for passed in range(label, target)}
        return merged

    def _target(self, regions: Regions, members: Sequence[int]) -> int | None:
        """The first backend that takes all of a region and has a neighbour to join. It comes after the region's own.

        Those before its own have refused some operation.
        """
        region = members[0]
        views = [self._graph.operations[i] for i in members]
        neighbours = regions.neighbours(region)
        for backend in sorted({label for n in neighbours if (label := regions.label(n)) > regions.label(region)}):
            joins = any(regions.label(n) == backend and regions.can_join(n, region) for n in neighbours)
            if joins and all(self._takes(view, backend) for view in views):
                return backend
        return None

    def _describe(
        self, view: OperationView, label: int, merged: Mapping[tuple[int, int], str], obstacles: Mapping[int, str]
    ) -> OperationPlacement:
        where = (view.graph.number, view.index, view.type)
        if view.type in CONTROL_FLOW:
            obstacle = next((obstacles[i] for i in view.callees if obstacles[i]), "")
            if obstacle:
                return OperationPlacement(*where, "", (Refusal(DRIVER, obstacle),))
            return OperationPlacement(*where, DRIVER)
        passed = self._backends if label < 0 else self._backends[:label]
        refusals = tuple(
            Refusal(backend.id, answer.reason or merged[view.index, number], answer.nearest)
            for number, backend in enumerate(passed)
            for answer in (self._takes(view, number),)
        )
        return OperationPlacement(*where, "" if label < 0 else self._backends[label].id, refusals)


def _ask(backend: Backend, view: OperationView) -> Support:
    """Whether a backend takes an operation. One that fails to answer does not take it."""
    try:
        return backend.supports(view)
    except MemoryError:
        raise
    except Exception as error:
        _log.exception("backend %s was asked about %s", backend.id, view.name)
        return Support(f"asking it failed: {type(error).__name__}: {error}")


def _unfit(view: OperationView, known: ExtensionTypes) -> str:
    """Why nobody can run an operation, whatever backends say: a client cannot give values of a size that is not known.

    Args:
        known: the operand types of extensions that have a size.
    """
    for o in (*view.operation.inputs, *view.operation.outputs):
        operand = view.graph.operands[o]
        if is_extension(operand.type) and operand.type not in known and operand.lifetime in _ENDS:
            return f"operand {o}, an input or output of {view.graph.name}, has an extension type that no backend lists"
    return ""
