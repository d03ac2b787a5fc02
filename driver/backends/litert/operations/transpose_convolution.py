"""TRANSPOSE_CONV_2D."""

from driver.backends.litert.known import Refused
from driver.backends.litert.limits import hold_steps
from driver.backends.litert.lowering import Lowering, converter
from driver.backends.litert.operations.convolution import FILTERED, arguments, like_input
from driver.backends.litert.operations.padding import PADDINGS
from driver.operations.transpose_convolution import SpreadAxis, spread
from nnhal.types import OperationType


@converter(OperationType.TRANSPOSE_CONV_2D, limits=FILTERED)
def transpose_conv_2d(lower: Lowering) -> None:
    """Where the engine would cut otherwise, it makes the whole output, and a slice of it is taken."""
    axes = spread(lower.call)
    hold_steps(*(n for axis in axes for n in (axis.stride, axis.full)))
    image, filter_, bias = arguments(lower, "filter")
    out = lower.image_output(like=like_input(lower, image))
    scheme = next((one for one in PADDINGS if all(_head(axis, one) == axis.head for axis in axes)), None)
    whole = out
    if scheme is None:
        if any(axis.head + axis.out > axis.full for axis in axes):
            raise Refused(
                "the output reaches farther than the filters", "an output no larger than input and filter give"
            )
        batches, _, _, channels = lower.writer.shapes[out]
        whole = lower.temporary(lower.writer.specs[out], (batches, *(axis.full for axis in axes), channels))
    lower.emit(
        "TRANSPOSE_CONV",
        [lower.constant(list(lower.writer.shapes[whole])), filter_, image, bias],
        [whole],
        "TransposeConvOptions",
        padding=PADDINGS[scheme or "VALID"],
        strideH=axes[0].stride,
        strideW=axes[1].stride,
        fusedActivationFunction=lower.call.activation(),
    )
    if whole != out:
        begin = lower.constant([0, axes[0].head, axes[1].head, 0])
        lower.emit("SLICE", [whole, begin, lower.constant(list(lower.writer.shapes[out]))], [out])


def _head(axis: SpreadAxis, scheme: str) -> int | None:
    """Cells that the engine cuts off before an output of this size; None where it takes the size for another one."""
    span = axis.filter if scheme == "VALID" else 1
    positions = -(-(axis.out - span + 1) // axis.stride)
    if positions != axis.input:
        return None
    return max((positions - 1) * axis.stride + axis.filter - axis.out, 0) // 2
