"""Shapes of SLICE, STRIDED_SLICE, GATHER and REVERSE."""

from dataclasses import dataclass

from driver.operations.call import Call, Shape
from driver.operations.shape import limit_rank, shape_rule
from nnhal.types import OperationType


@shape_rule(OperationType.SLICE)
def slice_(call: Call) -> list[Shape]:
    """The argument `size`, with -1 replaced by what remains."""
    shape = call.shape("input")
    begins, sizes = call.vector("begin", len(shape)), call.vector("size", len(shape))
    out = []
    for i, (length, begin, size) in enumerate(zip(shape, begins, sizes, strict=True)):
        call.require(0 <= begin <= length, f"begin[{i}] is {begin}; it must be in 0..{length}")
        call.require(-1 <= size <= length - begin, f"size[{i}] is {size}; it must be in -1..{length - begin}")
        out.append(length - begin if size == -1 else size)
    return [tuple(out)]


@dataclass(frozen=True, slots=True)
class Stride:
    """What a strided slice takes along one dimension: `size` elements. `dropped`: the dimension goes away."""

    taken: slice
    size: int
    dropped: bool


def strides(call: Call) -> list[Stride]:
    """The strided slice along each dimension of the input. Positions mean what they mean in a slice of Python.

    Raises:
        HalError: GENERAL_FAILURE: a vector has the wrong length, a stride is 0, or a dropped dimension's size is not 1.
    """
    shape = call.shape("input")
    begins, ends, steps = (call.vector(name, len(shape)) for name in ("begin", "end", "strides"))
    masks = [call.integer(name) for name in ("begin_mask", "end_mask", "shrink_axis_mask")]
    out = []
    for i, (length, begin, end, step) in enumerate(zip(shape, begins, ends, steps, strict=True)):
        call.require(step != 0, f"strides[{i}] is 0")
        from_edge, to_edge, dropped = (bool(mask >> i & 1) for mask in masks)
        taken = slice(None if from_edge else begin, None if to_edge else end, step)
        size = len(range(*taken.indices(length)))
        call.require(not dropped or step > 0, f"strides[{i}] is {step}; it must be > 0 as dimension {i} is dropped")
        call.require(not dropped or size == 1, f"dimension {i} has {size} elements; it must have 1 to be dropped")
        out.append(Stride(taken, size, dropped))
    return out


@shape_rule(OperationType.STRIDED_SLICE, empty=False)
def strided_slice(call: Call) -> list[Shape]:
    """Sizes of the slices of dimensions that are not dropped; [1] when all are."""
    limit_rank(call, "input")
    return [tuple(stride.size for stride in strides(call) if not stride.dropped) or (1,)]


@shape_rule(OperationType.GATHER, empty=False)
def gather(call: Call) -> list[Shape]:
    """The input's shape with the indices' shape in place of the axis."""
    shape, indices = call.shape("input"), call.array("indices")
    axis = call.axis(len(shape))
    low, high = int(indices.min()), int(indices.max())
    call.require(low >= 0 and high < shape[axis], f"indices lie in {low}..{high}; they must be in 0..{shape[axis] - 1}")
    return [(*shape[:axis], *indices.shape, *shape[axis + 1 :])]


@shape_rule(OperationType.REVERSE, empty=False)
def reverse(call: Call) -> list[Shape]:
    """As the input."""
    shape = call.shape("input")
    call.require(len(shape) <= 8, f"input has rank {len(shape)}; it must be 1 to 8")
    (axis,) = call.vector("axis", 1)
    call.require(0 <= axis < len(shape), f"axis is {axis}; it must be in 0..{len(shape) - 1}")
    return [shape]
