"""Operations on constants: they join a partition that reads their results, and never form one of their own.

Such an operation waits for nothing, so it can join any partition that runs before or with the first reader of its
result. Later readers get the result like any other value. A backend may compute it when it compiles the partition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnhal.types import OperandLifeTime
from nnhal_driver.backends.api import Support
from nnhal_driver.graph import Graph, OperationView


def constant_operations(graph: Graph) -> frozenset[int]:
    """Return the operations that read only constants or results of such operations, except IF and WHILE."""
    results: set[int] = set()
    found = []
    for view in graph.operations:
        inputs = view.operation.inputs
        if view.arguments is not None and all(
            o in graph.constants or o in results or graph.operands[o].lifetime == OperandLifeTime.NO_VALUE
            for o in inputs
        ):
            found.append(view.index)
            results.update(view.operation.outputs)
    return frozenset(found)


@dataclass
class Unit:
    """A partition in the making: its label, and its operations."""

    label: int
    members: list[int]


def add_constant_operations(
    graph: Graph,
    constant: frozenset[int],
    units: Sequence[Unit],
    supports: Callable[[OperationView, int], Support],
    first_supporter: Callable[[OperationView], int],
) -> list[Unit]:
    """Return the partitions of a graph in an order of execution, with its operations on constants.

    Args:
        graph: the graph.
        constant: the operations on constants.
        units: partitions of the other operations, in an order of execution.
        supports: returns whether the backend with a label supports an operation.
        first_supporter: returns the label of an operation that no reader's backend supports. Such operations run first.
    """
    readers = _readers(graph)
    by_position = dict(enumerate(units))
    by_label = {unit.label: position for position, unit in by_position.items()}
    positions = {i: position for position, unit in by_position.items() for i in unit.members}
    lowest = 0
    for i in sorted(constant, reverse=True):  # the readers of a result come after the operation
        view = graph.operations[i]
        unread = by_label.get(first_supporter(view), -1)
        first = min((positions[reader] for o in view.operation.outputs for reader in readers[o]), default=unread)
        for joined in dict.fromkeys((first, first - 1, 0, lowest)):
            unit = by_position.get(joined) if lowest <= joined <= first else None
            if unit is not None and unit.label >= 0 and supports(view, unit.label):
                break
        else:
            joined = lowest = lowest - 1
            by_position[joined] = Unit(first_supporter(view), [])
        by_position[joined].members.append(i)
        positions[i] = joined
    return [by_position[position] for position in sorted(by_position)]


def _readers(graph: Graph) -> dict[int, list[int]]:
    """Return the operations that read each operand which an operation writes."""
    readers: dict[int, list[int]] = {o: [] for view in graph.operations for o in view.operation.outputs}
    for view in graph.operations:
        for o in view.operation.inputs:
            if o in readers:
                readers[o].append(view.index)
    return readers
