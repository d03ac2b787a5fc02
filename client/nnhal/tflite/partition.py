"""Partition of a graph's operators into NNAPI operations and regions of the LiteRT extension.

The operators are reordered into phases. Each phase of operators that NNAPI lacks is one region. So the regions are few
and large, and do not depend on each other in a cycle.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nnhal.phases import divide_into_phases
from nnhal.tflite.graph import Operator


@dataclass(frozen=True, slots=True)
class Phase:
    """Operators that are converted one by one, or that form a region."""

    operators: tuple[Operator, ...]
    is_region: bool


def partition(operators: Sequence[Operator], others: Collection[int]) -> list[Phase]:
    """Return the phases, with as few regions as possible.

    Args:
        operators: the operators in an order of execution.
        others: positions in `operators` of those that become regions.
    """
    phases = divide_into_phases(operators, [int(i in others) for i in range(len(operators))])
    return [Phase(tuple(operators[i] for i in phase.operations), bool(phase.kind)) for phase in phases]
