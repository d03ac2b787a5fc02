"""Division of a data-flow graph of several kinds of operations into phases without cycles of dependencies.

The operations are reordered: all of one kind that are ready, then all of another kind that are ready, and so on. For
two kinds, no order needs fewer phases for the same first kind.
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
    """

    operations: tuple[int, ...]
    kind: int


def divide_into_phases(
    operations: Sequence[DataFlowNode], kinds: Sequence[int], left_out: Collection[int] = ()
) -> list[OperationPhase]:
    """Return the phases of the best start: with the fewest phases of other kinds than 0, then with the fewest phases.

    Args:
        operations: the operations in an order of execution.
        kinds: the kind of each operation, from 0 on.
        left_out: positions of operations that belong to no phase, and that none waits for.
    """
    attempts = (_phases(operations, kinds, left_out, start) for start in sorted(set(kinds)))
    return min(attempts, key=lambda phases: (sum(phase.kind != 0 for phase in phases), len(phases)), default=[])


def _phases(
    operations: Sequence[DataFlowNode], kinds: Sequence[int], left_out: Collection[int], start: int
) -> list[OperationPhase]:
    numbers = [i for i in range(len(operations)) if i not in left_out]
    writers = {value: i for i in numbers for value in operations[i].outputs}
    missing = {i: {writers[v] for v in operations[i].inputs if v in writers} - {i} for i in numbers}
    readers: dict[int, list[int]] = {}
    for i, needed in missing.items():
        for writer in needed:
            readers.setdefault(writer, []).append(i)
    ready: dict[int, deque[int]] = {kind: deque() for kind in sorted(set(kinds))}
    for i, needed in missing.items():
        if not needed:
            ready[kinds[i]].append(i)
    phases: list[OperationPhase] = []
    kind: int | None = start
    while kind is not None:
        done: list[int] = []
        while ready[kind]:
            current = ready[kind].popleft()
            done.append(current)
            for reader in readers.get(current, ()):
                missing[reader].discard(current)
                if not missing[reader]:
                    ready[kinds[reader]].append(reader)
        if done:
            phases.append(OperationPhase(tuple(sorted(done)), kind))
        kind = next((other for other, waiting in ready.items() if waiting), None)
    return phases
