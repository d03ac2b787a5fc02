"""Converter of TRANSPOSE_CONV_2D."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.limits import check_steps
from nnhal_driver.backends.litert.lowering import Lowering, converter
from nnhal_driver.backends.litert.operations.layers.convolution import FILTERED, filter_arguments, output_spec
from nnhal_driver.backends.litert.operations.padding import PADDINGS
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.operations.layers.transpose_convolution import TransposedAxis, transposed_axes


@converter(OperationType.TRANSPOSE_CONV_2D, limits=FILTERED)
def transpose_conv_2d(lower: Lowering) -> None:
    """Emit a TRANSPOSE_CONV. If the engine would crop differently, emit the uncropped output and slice it."""
    axes = transposed_axes(lower.call)
    check_steps(*(n for axis in axes for n in (axis.stride, axis.full)))
    image, filter_, bias = filter_arguments(lower, "filter")
    out = lower.image_output(like=output_spec(lower, image))
    scheme = next((name for name in PADDINGS if all(_head(axis, name) == axis.head for axis in axes)), None)
    whole = out
    if scheme is None:
        if any(axis.head + axis.out > axis.full for axis in axes):
            raise Unsupported("the output is larger than input and filter give", "an output that the filters cover")
        batches, _, _, channels = lower.writer.shapes[out]
        whole = lower.writer.tensor(lower.writer.specs[out], (batches, *(axis.full for axis in axes), channels))
    lower.emit(
        "TRANSPOSE_CONV",
        [lower.constant(list(lower.writer.shapes[whole])), filter_, image, bias],
        [whole],
        "TransposeConvOptions",
        padding=PADDINGS[scheme or "VALID"],
        stride_h=axes[0].stride,
        stride_w=axes[1].stride,
        fused_activation_function=lower.call.activation(),
    )
    if whole != out:
        begin = lower.constant([0, axes[0].head, axes[1].head, 0])
        lower.emit("SLICE", [whole, begin, lower.constant(list(lower.writer.shapes[out]))], [out])


def _head(axis: TransposedAxis, scheme: str) -> int | None:
    """Return the number of cells that the engine crops at the start, or None if it rejects the output size."""
    span = axis.filter if scheme == "VALID" else 1
    positions = -(-(axis.out - span + 1) // axis.stride)
    if positions != axis.input:
        return None
    return max((positions - 1) * axis.stride + axis.filter - axis.out, 0) // 2
