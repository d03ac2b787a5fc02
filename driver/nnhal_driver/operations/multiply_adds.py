"""Registration of multiply-add counts, which families define beside their shape rules.

    @multiply_adds(OperationType.CONV_2D, of=("output", "filter"))
    def filter_multiply_adds(output: Shape, weights: Shape) -> int:
        return prod(output) * prod(weights[1:])

Work of another kind counts as the multiply-adds that a slow CPU does meanwhile, 2 ns each: a comparison of a sort, or
the Python code of a time step. All other operations have no count: `nnhal_driver.compilation.cost` counts the elements
of their tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nnhal_driver.graph import OperationView
from nnhal_driver.operations.call import Shape

Count = Callable[..., int]

STEP = 2**15
"""Work of some numpy calls on small arrays."""
SORTING = 2**7
"""Work of a sort for each element."""
PASSES = 8
"""Work of an element of a tensor: kernels of quantized and transcendental functions take several passes."""
LONG_STEPS = 2**30
"""Work that takes an engine 100 ms if it multiplies, and 500 ms if memory bounds it. A longer call would not notice a
deadline in time."""


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """A registered count.

    Attributes:
        of: names of the arguments that `count` takes: the shapes of tensors, and the values of scalars.
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


def count_multiply_adds(view: OperationView, shapes: Mapping[int, Shape]) -> int | None:
    """Return the multiply-adds of an operation. None if it has no count, or an argument of it is unknown.

    `shapes`: the known shapes of tensors by operand, none of them empty.
    """
    if (registered := MULTIPLY_ADDS.get(view.type)) is None:
        return None
    arguments: list[Any] = []
    for name in registered.of:
        position = view.positions.get(name, -1)
        value = view.constant(name)
        if value is not None and not value.ndim:
            arguments.append(int(value))
        elif position in shapes:
            arguments.append(shapes[position])
        else:
            return None
    return max(0, registered.count(*arguments))


def count_steps(view: OperationView, shapes: Mapping[int, Shape]) -> int:
    """Return the multiply-adds of an operation, and passes over all its tensors whose shapes are known.

    A unit takes a slow CPU 2 ns, and an engine 0.1 ns, or 0.5 ns of a pass.
    """
    return (count_multiply_adds(view, shapes) or 0) + PASSES * sum(map(prod, shapes.values()))
