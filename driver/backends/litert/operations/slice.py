"""SLICE, STRIDED_SLICE, GATHER and REVERSE."""

from driver.backends.litert.lowering import Lowering, converter
from driver.operations.slice import strides
from nnhal.types import OperationType


@converter(OperationType.SLICE)
def slice_(lower: Lowering) -> None:
    """The sizes are those of the output."""
    begin = lower.constant(lower.call.vector("begin"))
    size = lower.constant(list(lower.shape("output")))
    lower.emit("SLICE", [lower.input("input"), begin, size], [lower.output(like=lower.spec("input"))])


@converter(OperationType.STRIDED_SLICE)
def strided_slice(lower: Lowering) -> None:
    """Positions counted from the start, without masks; dimensions are dropped by a new shape."""
    taken = strides(lower.call)
    begins, ends, steps = [], [], []
    open_ends = 0
    for i, (stride, length) in enumerate(zip(taken, lower.shape("input"), strict=True)):
        begin, end, step = stride.taken.indices(length)
        begins.append(begin)
        ends.append(max(end, 0))
        steps.append(step)
        open_ends |= (end < 0) << i
    out = lower.reshaped_output(tuple(stride.size for stride in taken), like=lower.spec("input"))
    vectors = [lower.constant(vector) for vector in (begins, ends, steps)]
    lower.emit("STRIDED_SLICE", [lower.input("input"), *vectors], [out], "StridedSliceOptions", endMask=open_ends)


@converter(OperationType.GATHER, checked_by_engine="indices")
def gather(lower: Lowering) -> None:
    """The axis is an option; the engine checks indices that are not constant."""
    axis = lower.call.axis(len(lower.shape("input")))
    inputs = [lower.input("input"), lower.input("indices")]
    lower.emit("GATHER", inputs, [lower.output(like=lower.spec("input"))], "GatherOptions", axis=axis)


@converter(OperationType.REVERSE)
def reverse(lower: Lowering) -> None:
    """One axis."""
    axis = lower.constant(lower.call.vector("axis"))
    lower.emit("REVERSE_V2", [lower.input("input"), axis], [lower.output(like=lower.spec("input"))])
