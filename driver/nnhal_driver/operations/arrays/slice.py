"""Shapes of SLICE, STRIDED_SLICE, GATHER and REVERSE."""

from dataclasses import dataclass

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import shape_rule


@shape_rule(OperationType.SLICE)
def slice_(call: OperationCall) -> list[Shape]:
    """Return the argument `size`, with -1 replaced by the remaining length."""
    shape = call.shape("input")
    begins, sizes = call.vector("begin", len(shape)), call.vector("size", len(shape))
    sizes_out = []
    for i, (length, begin, size) in enumerate(zip(shape, begins, sizes, strict=True)):
        call.require(0 <= begin <= length, f"begin[{i}] is {begin}; it must be in 0..{length}")
        call.require(-1 <= size <= length - begin, f"size[{i}] is {size}; it must be in -1..{length - begin}")
        sizes_out.append(length - begin if size == -1 else size)
    return [tuple(sizes_out)]


@dataclass(frozen=True, slots=True)
class Stride:
    """A strided slice along one dimension.

    Attributes:
        dropped: whether the output lacks the dimension.
    """

    elements: slice
    size: int
    dropped: bool


def strides(call: OperationCall) -> list[Stride]:
    """Return the strided slice along each dimension of the input. Positions have the meaning of Python's slices.

    Raises:
        HalError: GENERAL_FAILURE: a vector has the wrong length, a stride is 0, or a dropped dimension's size is not 1.
    """
    shape = call.shape("input")
    begins, ends, steps = (call.vector(name, len(shape)) for name in ("begin", "end", "strides"))
    masks = [call.integer(name) for name in ("begin_mask", "end_mask", "shrink_axis_mask")]
    result = []
    for i, (length, begin, end, step) in enumerate(zip(shape, begins, ends, steps, strict=True)):
        call.require(step != 0, f"strides[{i}] is 0")
        from_edge, to_edge, dropped = (bool(mask >> i & 1) for mask in masks)
        elements = slice(None if from_edge else begin, None if to_edge else end, step)
        size = len(range(*elements.indices(length)))
        call.require(
            not dropped or step > 0, f"strides[{i}] is {step}; it must be > 0 because dimension {i} is dropped"
        )
        call.require(not dropped or size == 1, f"dimension {i} has {size} elements; it must have 1 to be dropped")
        result.append(Stride(elements, size, dropped))
    return result


@shape_rule(OperationType.STRIDED_SLICE, empty=False, rank_4=True)
def strided_slice(call: OperationCall) -> list[Shape]:
    """Return the sizes of the slices of dimensions that are not dropped, or [1] if all are dropped."""
    return [tuple(stride.size for stride in strides(call) if not stride.dropped) or (1,)]


@shape_rule(OperationType.GATHER, empty=False)
def gather(call: OperationCall) -> list[Shape]:
    """Return the input's shape with the indices' shape in place of the axis."""
    shape, indices = call.shape("input"), call.array("indices")
    axis = call.axis(len(shape))
    low, high = int(indices.min()), int(indices.max())
    call.require(low >= 0 and high < shape[axis], f"indices lie in {low}..{high}; they must be in 0..{shape[axis] - 1}")
    return [(*shape[:axis], *indices.shape, *shape[axis + 1 :])]


@shape_rule(OperationType.REVERSE, empty=False)
def reverse(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    shape = call.shape("input")
    call.require(len(shape) <= 8, f"input has rank {len(shape)}; it must be 1 to 8")
    (axis,) = call.vector("axis", 1)
    call.require(0 <= axis < len(shape), f"axis is {axis}; it must be in 0..{len(shape) - 1}")
    return [shape]
