"""Placement: the backend that runs each operation, and the reasons.

Each operation goes to the first backend, in the device's order, that supports it. Connected operations on one backend
form a partition (`nnhal_driver.compilation.partitioning`). A partition that does not pay for its boundary
(`nnhal_driver.compilation.cost`) moves to the backend of a neighbor that supports all of it, and the two are joined;
authors of a backend can forbid this. Operations on constants join a partition that reads their results
(`nnhal_driver.compilation.constant_operations`). The driver runs IF and WHILE itself, each as a partition of its own.
The subgraphs that they run are placed in the same way.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod

from nnhal.errors import HalError
from nnhal.types import (
    ExtensionOperandTypeInformation,
    OperandLifeTime,
    OperationPlacement,
    OperationType,
    Partition,
    Placement,
    Refusal,
    is_extension,
)
from nnhal_driver.backends.api import Backend, Support
from nnhal_driver.backends.boundary.answers import extensions, support
from nnhal_driver.backends.boundary.isolation import is_isolated, isolated
from nnhal_driver.compilation.constant_operations import Unit, add_constant_operations, constant_operations
from nnhal_driver.compilation.cost import divide_long, unprofitable_reason
from nnhal_driver.compilation.partitioning import DataFlow, Partitioner
from nnhal_driver.execution.control_flow import DRIVER_ID
from nnhal_driver.extension_types import ExtensionTypes, extension_types
from nnhal_driver.graph import Graph, OperationView, callees, callees_first

CONTROL_FLOW = (OperationType.IF, OperationType.WHILE)

MAX_NESTING = 64
"""Maximum nesting of IF and WHILE in a plan: running it takes the stack of a thread."""

_MODEL_IO = (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT)

_JOINED = "merged: it only reads constants, and joins the partition that reads its result"


def place(graphs: Sequence[Graph], backends: Sequence[Backend], *, merge: bool = True) -> Placement:
    """Place every operation of every subgraph that main reaches. `merge`: see Placer."""
    return Placer(graphs, backends, merge=merge).place()


def partitions_by_subgraph(placement: Placement) -> Mapping[int, list[Partition]]:
    """Return the partitions of each subgraph, in their order of execution."""
    partitions: dict[int, list[Partition]] = defaultdict(list)
    for partition in placement.partitions:
        partitions[partition.subgraph].append(partition)
    return partitions


def explain_refusal(graphs: Sequence[Graph], operation: OperationPlacement) -> str:
    """Return in one line why no backend supports an operation."""
    reasons = "; ".join(f"{refusal.backend}: {refusal.reason}" for refusal in operation.refusals)
    view = graphs[operation.subgraph].operations[operation.operation]
    return f"{view.name} is not supported: {reasons}"


class Placer:
    """Placement of one model, which is repeated for operations that a backend turns out not to run.

    Each backend is asked about each operation at most once.

    Args:
        graphs: the subgraphs of the model, main first.
        backends: in order of preference.
        merge: whether partitions that do not pay for their boundary move to the backend of a neighbor.
    """

    def __init__(self, graphs: Sequence[Graph], backends: Sequence[Backend], *, merge: bool = True) -> None:
        self._ids = [backend.id for backend in backends]
        self._graphs = graphs
        self._subgraphs: dict[int, _SubgraphPlacer] = {}
        self._depths: dict[int, int] = {}
        for graph in callees_first(graphs):
            self._subgraphs[graph.number] = _SubgraphPlacer(graph, backends, merge)
            self._depths[graph.number] = 1 + max((self._depths[i] for i in callees(graph)), default=0)

    def place(self) -> Placement:
        """Return the placement according to the answers so far."""
        obstacles: dict[int, str] = {}
        operations: dict[int, list[OperationPlacement]] = {}
        partitions: dict[int, list[Partition]] = {}
        for number, subgraph in self._subgraphs.items():
            operations[number], partitions[number] = subgraph.place(obstacles)
            obstacles[number] = self._obstacle(number, operations[number])
        order = sorted(self._subgraphs)
        return Placement(
            tuple(partition for number in order for partition in partitions[number]),
            tuple(operation for number in order for operation in operations[number]),
        )

    def _obstacle(self, number: int, operations: Sequence[OperationPlacement]) -> str:
        """Return why an IF or WHILE cannot run a subgraph, or "". The reason names the innermost operation."""
        if self._depths[number] >= MAX_NESTING:
            return f"IF and WHILE are nested more than {MAX_NESTING} deep"
        missing = next((operation for operation in operations if not operation.backend), None)
        if missing is None:
            return ""
        return missing.refusals[0].reason if missing.type in CONTROL_FLOW else explain_refusal(self._graphs, missing)

    @property
    def memory_error(self) -> MemoryError | None:
        """The error of a question for which there was not enough memory, or None."""
        return next(filter(None, (subgraph.memory_error for subgraph in self._subgraphs.values())), None)

    def exclude(self, partition: Partition, reason: str) -> None:
        """Record that the backend of a partition does not run its operations. The next `place` moves them."""
        subgraph, backend = self._subgraphs[partition.subgraph], self._ids.index(partition.backend)
        for i in partition.operations:
            subgraph.answers[i][backend] = Support(reason)


class _SubgraphPlacer:
    """Placement of one subgraph. `answers`: for each operation, the answer of each backend by the backend's number."""

    def __init__(self, graph: Graph, backends: Sequence[Backend], merge: bool) -> None:
        self._graph = graph
        self._backends = backends
        self._may_merge = merge
        self._constant = constant_operations(graph) if merge else frozenset()
        self._flow = DataFlow(graph, self._constant)
        self.answers: list[dict[int, Support]] = [{} for _ in graph.operations]
        listed = [extensions(backend) if graph.extensions else () for backend in backends]
        self._extension_types = extension_types(graph.extensions, chain(*listed))
        self._own_types = [extension_types(graph.extensions, own) for own in listed]
        self.memory_error: MemoryError | None = None

    def place(self, obstacles: Mapping[int, str]) -> tuple[list[OperationPlacement], list[Partition]]:
        """Return the operations in the model's order, and the partitions in an order of execution.

        Args:
            obstacles: for each subgraph that this one may run, why it cannot run, or "".
        """
        for number, asked in enumerate(self._backends):
            if is_isolated(asked):
                self._ask_at_once(number)
        labels = [self._label(view) for view in self._graph.operations]
        partitioner = Partitioner(self._flow, labels, self._graph.check)
        merged = self._merge(partitioner) if self._may_merge else {}
        units = [Unit(partitioner.label(members[0]), list(members)) for members in partitioner.in_order()]
        units = [unit for unit in units if unit.members[0] not in self._constant]
        units = add_constant_operations(self._graph, self._constant, units, self._ask, self._first_supporter)
        label_of = {i: unit.label for unit in units for i in unit.members}
        operations = [self._describe(view, label_of[view.index], merged, obstacles) for view in self._graph.operations]
        partitions = []
        for unit in units:
            if backend := operations[unit.members[0]].backend:
                can_stop = unit.label < 0 or self._backends[unit.label].stops_between_operations
                parts = [tuple(sorted(unit.members))] if can_stop else divide_long(self._graph, unit.members)
                partitions += [Partition(self._graph.number, backend, part) for part in parts]
        return operations, partitions

    def _label(self, view: OperationView) -> int:
        """Return the label of an operation before partitions are merged."""
        self._graph.check()
        return -1 - view.index if view.index in self._constant else self._first_supporter(view)

    def _ask(self, view: OperationView, backend: int) -> Support:
        answers = self.answers[view.index]
        if backend not in answers:
            answers[backend] = self._answer(view, backend)
        return answers[backend]

    def _answer(self, view: OperationView, backend: int) -> Support:
        try:
            obstacle = _extension_obstacle(view, self._extension_types, self._own_types[backend])
            return Support(obstacle) if obstacle else support(self._backends[backend], view)
        except MemoryError as error:
            self.memory_error = error.with_traceback(None)  # whose frames refer to this object
            return Support("there is not enough memory to ask it")

    def _ask_at_once(self, backend: int) -> None:
        """Ask a plug-in about all operations that no backend before it supports, in one call on its thread."""
        views = [
            view
            for view, answers in zip(self._graph.operations, self.answers, strict=True)
            if view.type not in CONTROL_FLOW
            and view.index not in self._constant
            and backend not in answers
            and not any(self._ask(view, earlier) for earlier in range(backend))
        ]
        try:
            found = isolated(
                self._backends[backend], "supports", lambda: [self._answer(view, backend) for view in views]
            )
        except HalError as error:
            found = [Support(f"asking it failed: {error.reason}")] * len(views)
        for view, answer in zip(views, found, strict=True):
            self.answers[view.index][backend] = answer

    def _first_supporter(self, view: OperationView) -> int:
        """Return the number of the first backend that supports an operation, or a negative number of its own."""
        numbers = () if view.type in CONTROL_FLOW else range(len(self._backends))
        return next((number for number in numbers if self._ask(view, number)), -1 - view.index)

    def _merge(self, partitioner: Partitioner) -> dict[tuple[int, int], str]:
        """Move partitions that do not pay for their boundary. Return the reasons by operation and backend left out."""
        merged: dict[tuple[int, int], str] = {}
        for members in partitioner.in_order():
            self._graph.check()
            label = partitioner.label(members[0])
            unchanged = partitioner.size(members[0]) == len(members)
            if not unchanged or label not in range(len(self._backends) - 1):
                continue
            reason = unprofitable_reason(self._graph, members)
            target = self._merge_target(partitioner, members) if reason else None
            if target is not None:
                partitioner.relabel(members[0], target)
                merged |= {(i, passed): f"merged: {reason}" for i in members for passed in range(label, target)}
        return merged

    def _merge_target(self, partitioner: Partitioner, members: Sequence[int]) -> int | None:
        """Return the first backend that supports all of a partition and has a neighbor to join.

        It comes after the partition's own: those before have refused some operation.
        """
        own = members[0]
        views = [self._graph.operations[i] for i in members]
        neighbors = partitioner.neighbors(own)
        labels = {label for n in neighbors if (label := partitioner.label(n)) > partitioner.label(own)}
        for backend in sorted(labels):
            joins = any(partitioner.label(n) == backend and partitioner.can_join(n, own) for n in neighbors)
            if joins and all(self._ask(view, backend) for view in views):
                return backend
        return None

    def _describe(
        self, view: OperationView, label: int, merged: Mapping[tuple[int, int], str], obstacles: Mapping[int, str]
    ) -> OperationPlacement:
        self._graph.check()
        where = (view.graph.number, view.index, view.type)
        if view.type in CONTROL_FLOW:
            obstacle = next((obstacles[i] for i in view.callees if obstacles[i]), "")
            if obstacle:
                return OperationPlacement(*where, "", (Refusal(DRIVER_ID, obstacle),))
            return OperationPlacement(*where, DRIVER_ID)
        passed = self._backends if label < 0 else self._backends[:label]
        refusals = tuple(
            Refusal(backend.id, answer.reason or merged.get((view.index, number), _JOINED), answer.nearest)
            for number, backend in enumerate(passed)
            for answer in (self._ask(view, number),)
        )
        return OperationPlacement(*where, "" if label < 0 else self._backends[label].id, refusals)


def _extension_obstacle(view: OperationView, known: ExtensionTypes, own: ExtensionTypes) -> str:
    """Return why a backend cannot run an operation with operands of extensions, or "".

    A client cannot pass values of a type whose size is unknown. A constant has the size that the backend lists.
    `known`: the operand types of extensions that the device lists; `own`: those that the backend lists.
    """
    graph = view.graph
    for o in (*view.operation.inputs, *view.operation.outputs):
        operand = graph.operands[o]
        if not is_extension(operand.type):
            continue
        if operand.type not in known and operand.lifetime in _MODEL_IO:
            return f"operand {o}, an input or output of {graph.name}, has an extension type that no backend lists"
        if operand.type in own and o in graph.constants:
            dimensions, size = operand.dimensions, graph.constants[o].nbytes
            if not _has_size(size, dimensions, own[operand.type]):
                expected = f"{list(dimensions)} elements of {own[operand.type].byte_size}"
                return f"operand {o} has {size} bytes; expected {expected}"
    return ""


def _has_size(size: int, dimensions: Sequence[int], type_: ExtensionOperandTypeInformation) -> bool:
    """Return whether bytes are a whole number of elements, and as many as the dimensions say that are known."""
    known = type_.byte_size * prod(dimension for dimension in dimensions if dimension)
    if 0 in dimensions or (type_.is_tensor and not dimensions):
        return size % known == 0
    return size == known
