"""Registration of multiply-add counts, which families define beside their shape rules.

    @multiply_adds(OperationType.CONV_2D, of=("output", "filter"))
    def filter_multiply_adds(output: Shape, weights: Shape) -> int:
        return prod(output) * prod(weights[1:])

`nnhal_driver.compilation.cost` uses the counts. For all other operations it counts elements.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Count = Callable[..., int]


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """A registered count.

    Attributes:
        of: names of the arguments whose shapes `count` takes.
        count: returns the number of multiply-adds. The shapes are known and not empty. They may have any other rank
            than the operation requires: they are declarations, which no shape rule has checked.
    """

    of: Sequence[str]
    count: Count


MULTIPLY_ADDS: dict[int, MultiplyAdds] = {}
"""Every registered count, by operation type."""


def multiply_adds(*types: int, of: Sequence[str]) -> Callable[[Count], Count]:
    """Register the multiply-add count of one or more operation types."""

    def register(count: Count) -> Count:
        for type_ in types:
            assert type_ not in MULTIPLY_ADDS, f"operation type {type_} has two counts of multiply-adds"
            MULTIPLY_ADDS[type_] = MultiplyAdds(of, count)
        return count

    return register
