"""Division of a data-flow graph of two kinds of operations into phases, which do not depend on each other in a cycle.

The operations are reordered: all of one kind that are ready, then all of the other kind that are ready, and so on. No
order needs fewer phases for the same first kind.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


class DataFlowNode(Protocol):
    """An operation of a graph: it reads values and writes others, given by their numbers."""

    @property
    def inputs(self) -> Sequence[int]:
        """The values that it reads."""

    @property
    def outputs(self) -> Sequence[int]:
        """The values that it writes."""


@dataclass(frozen=True, slots=True)
class OperationPhase:
    """Operations of one kind. All others that they read from are in earlier phases or in this one.

    Attributes:
        operations: their positions in the graph, in its order.
        is_marked: their kind.
    """

    operations: tuple[int, ...]
    is_marked: bool


def divide_into_phases(
    operations: Sequence[DataFlowNode], marked: Collection[int], left_out: Collection[int] = ()
) -> list[OperationPhase]:
    """Return the phases of the better of the two possible starts: with fewer marked phases, then with fewer phases.

    Args:
        operations: the operations in an order of execution.
        marked: positions of the operations of the marked kind.
        left_out: positions of operations that belong to no phase, and that none waits for.
    """
    attempts = (_phases(operations, marked, left_out, starts_marked=start) for start in (False, True))
    return min(attempts, key=lambda phases: (sum(phase.is_marked for phase in phases), len(phases)))


def _phases(
    operations: Sequence[DataFlowNode], marked: Collection[int], left_out: Collection[int], *, starts_marked: bool
) -> list[OperationPhase]:
    numbers = [i for i in range(len(operations)) if i not in left_out]
    writers = {value: i for i in numbers for value in operations[i].outputs}
    missing = {i: {writers[v] for v in operations[i].inputs if v in writers} - {i} for i in numbers}
    readers: dict[int, list[int]] = {}
    for i, needed in missing.items():
        for writer in needed:
            readers.setdefault(writer, []).append(i)
    ready = {
        kind: deque(i for i, needed in missing.items() if not needed and (i in marked) is kind)
        for kind in (False, True)
    }
    phases: list[OperationPhase] = []
    kind = starts_marked
    while ready[False] or ready[True]:
        done: list[int] = []
        while ready[kind]:
            current = ready[kind].popleft()
            done.append(current)
            for reader in readers.get(current, ()):
                missing[reader].discard(current)
                if not missing[reader]:
                    ready[reader in marked].append(reader)
        if done:
            phases.append(OperationPhase(tuple(sorted(done)), kind))
        kind = not kind
    return phases
