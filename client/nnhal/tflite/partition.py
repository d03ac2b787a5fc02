"""Partition of a graph's operators into NNAPI operations and regions of the LiteRT extension.

The operators are reordered into phases: all NNAPI operators that are ready, then all others that are ready, and so on.
Each phase of others is one region. So the regions are few and large, and do not depend on each other in a cycle.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nnhal.tflite.graph import Operator


@dataclass(frozen=True, slots=True)
class Phase:
    """Operators that are converted one by one, or that form a region."""

    operators: tuple[Operator, ...]
    is_region: bool


def partition(operators: Sequence[Operator], others: Collection[int]) -> list[Phase]:
    """Return the phases, with the smaller number of regions of the two possible starts.

    Args:
        operators: the operators in an order of execution.
        others: positions in `operators` of those that become regions.
    """
    attempts = (_phases(operators, others, start_with_region=start) for start in (False, True))
    return min(attempts, key=lambda phases: sum(phase.is_region for phase in phases))


def _phases(operators: Sequence[Operator], others: Collection[int], *, start_with_region: bool) -> list[Phase]:
    producers = {tensor: i for i, operator in enumerate(operators) for tensor in operator.outputs}
    missing = [{producers[t] for t in operator.inputs if t in producers} - {i} for i, operator in enumerate(operators)]
    readers: dict[int, list[int]] = {}
    for i, needed in enumerate(missing):
        for producer in needed:
            readers.setdefault(producer, []).append(i)
    ready = {
        kind: [i for i, needed in enumerate(missing) if not needed and (i in others) is kind] for kind in (False, True)
    }
    phases: list[Phase] = []
    kind = start_with_region
    while ready[False] or ready[True]:
        done: list[int] = []
        while ready[kind]:
            current = ready[kind].pop(0)
            done.append(current)
            for reader in readers.get(current, ()):
                missing[reader].discard(current)
                if not missing[reader]:
                    ready[reader in others].append(reader)
        if done:
            phases.append(Phase(tuple(operators[i] for i in sorted(done)), kind))
        kind = not kind
    return phases
