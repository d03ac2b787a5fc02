"""Registration of the multiply-adds of operations that have them, beside their shape rules.

    @multiply_adds(OperationType.CONV_2D, of=("output", "filter"))
    def filters(output: Shape, weights: Shape) -> int:
        return prod(output) * prod(weights[1:])

`driver.cost` counts with them; for all other operations it counts elements.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Count = Callable[..., int]


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """`count` gives the multiply-adds from the shapes of the arguments `of`, each of them known."""

    of: Sequence[str]
    count: Count


MULTIPLY_ADDS: dict[int, MultiplyAdds] = {}
"""Every registered count, by operation type."""


def multiply_adds(*types: int, of: Sequence[str]) -> Callable[[Count], Count]:
    """Registers how the multiply-adds of one or more operation types are counted."""

    def register(count: Count) -> Count:
        for type_ in types:
            assert type_ not in MULTIPLY_ADDS, f"operation type {type_} has two counts of multiply-adds"
            MULTIPLY_ADDS[type_] = MultiplyAdds(of, count)
        return count

    return register
