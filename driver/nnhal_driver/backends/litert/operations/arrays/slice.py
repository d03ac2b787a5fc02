"""Converters of SLICE, STRIDED_SLICE, GATHER and REVERSE."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter
from nnhal_driver.operations.arrays.slice import strides


@converter(OperationType.SLICE)
def slice_(lower: Lowering) -> None:
    """Pass the output's shape as sizes."""
    begin = lower.constant(lower.call.vector("begin"))
    size = lower.constant(list(lower.shape("output")))
    lower.emit("SLICE", [lower.input("input"), begin, size], [lower.output(like=lower.spec("input"))])


@converter(OperationType.STRIDED_SLICE)
def strided_slice(lower: Lowering) -> None:
    """Pass positions counted from the start, without masks. A reshape drops dimensions."""
    slices = strides(lower.call)
    begins, ends, steps = [], [], []
    open_ends = 0
    for i, (stride, length) in enumerate(zip(slices, lower.shape("input"), strict=True)):
        begin, end, step = stride.elements.indices(length)
        begins.append(begin)
        ends.append(max(end, 0))
        steps.append(step)
        open_ends |= (end < 0) << i
    out = lower.reshaped_output(tuple(stride.size for stride in slices), like=lower.spec("input"))
    vectors = [lower.constant(vector) for vector in (begins, ends, steps)]
    lower.emit("STRIDED_SLICE", [lower.input("input"), *vectors], [out], "StridedSliceOptions", end_mask=open_ends)


@converter(OperationType.GATHER, checked_by_engine="indices")
def gather(lower: Lowering) -> None:
    """Pass the axis as an option. The engine checks indices that are not constant."""
    axis = lower.call.axis(len(lower.shape("input")))
    inputs = [lower.input("input"), lower.input("indices")]
    lower.emit("GATHER", inputs, [lower.output(like=lower.spec("input"))], "GatherOptions", axis=axis)


@converter(OperationType.REVERSE)
def reverse(lower: Lowering) -> None:
    """Pass the axis as a tensor."""
    axis = lower.constant(lower.call.vector("axis"))
    lower.emit("REVERSE_V2", [lower.input("input"), axis], [lower.output(like=lower.spec("input"))])
