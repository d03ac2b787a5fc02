"""Converters of CONV_2D, DEPTHWISE_CONV_2D and GROUPED_CONV_2D."""

import numpy as np

from nnhal.tflite_schema.packing import Quantization, TensorSpec
from nnhal.types import OperationType
from nnhal_driver.backends.litert.limits import KernelLimits, check_depthwise_channels
from nnhal_driver.backends.litert.lowering import INT32, Lowering, converter, with_type
from nnhal_driver.backends.litert.operations.padding import PADDINGS, pad_image, padding_scheme
from nnhal_driver.operations.layers.convolution import filter_window

FILTERED = KernelLimits(product_of=("input", "filter"))


@converter(OperationType.CONV_2D, OperationType.GROUPED_CONV_2D, limits=FILTERED)
def conv_2d(lower: Lowering) -> None:
    """Convert a filter [depth_out, height, width, depth_in]. The engine infers the number of groups from the shapes."""
    convolution(lower, "CONV_2D", "Conv2DOptions")


@converter(OperationType.DEPTHWISE_CONV_2D, limits=FILTERED)
def depthwise_conv_2d(lower: Lowering) -> None:
    """Convert a filter [1, height, width, depth_out], the layout of both."""
    constant = lower.is_constant("filter") and lower.is_constant("bias")
    check_depthwise_channels(lower.shape("filter")[3], lower.spec("filter").type, constant=constant)
    multiplier = lower.call.integer("depth_multiplier")
    convolution(lower, "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", depth_multiplier=multiplier)


def convolution(lower: Lowering, operator: str, options: str, **fields: object) -> None:
    """Emit a convolution: the steps that all kinds share."""
    space = filter_window(lower.call)
    image, filter_, bias = filter_arguments(lower, "filter")
    out = lower.image_output(like=output_spec(lower, image))
    scheme = padding_scheme(space)
    if scheme is None:
        image, scheme = pad_image(lower, image, space), "VALID"
    lower.emit(
        operator,
        [image, filter_, bias],
        [out],
        options,
        padding=PADDINGS[scheme],
        stride_h=space.height.stride,
        stride_w=space.width.stride,
        dilation_h_factor=space.height.dilation,
        dilation_w_factor=space.width.dilation,
        fused_activation_function=lower.call.activation(),
        **fields,
    )


def output_spec(lower: Lowering, image: int) -> TensorSpec:
    """Return the spec of a convolution's output, with the signedness of its image."""
    spec = lower.spec("output")
    return spec if spec.quantization is None else with_type(spec, lower.writer.specs[image].type)


def filter_arguments(lower: Lowering, weights: str) -> tuple[int, int, int]:
    """Return image (NHWC), weights and bias of a convolution or matrix product, as the engine requires them.

    The engine's signed kernels require weights with zero point 0. Its unsigned kernels do not support per-channel
    scales. Values are converted to the other signedness where necessary.
    """
    image, spec = lower.image_input(), lower.spec(weights)
    if spec.quantization is None:
        return image, lower.input(weights), lower.input("bias")
    if lower.call.channel_quant(weights) is not None:
        image = lower.as_spec(image, with_type(lower.writer.specs[image], "INT8"))
    elif spec.type == "INT8" and spec.quantization.zero_points != (0,):
        spec = with_type(spec, "UINT8")
        image = lower.as_spec(image, with_type(lower.writer.specs[image], "UINT8"))
    return image, _weights(lower, weights, spec), _bias(lower, spec)


def _weights(lower: Lowering, name: str, spec: TensorSpec) -> int:
    """Return the weights in `spec`: unchanged, or unsigned."""
    if spec == lower.spec(name):
        return lower.input(name)
    if not lower.is_constant(name):
        return lower.as_spec(lower.input(name), spec)
    return lower.network.computed(lower.positions[name], spec, lambda value: value.view(np.uint8) ^ np.uint8(128))


def _bias(lower: Lowering, weights: TensorSpec) -> int:
    """Return the bias with the scales of image times weights, which NNAPI omits for per-channel weights."""
    assert weights.quantization is not None
    scale = lower.call.operand("input").scale
    scales = tuple(float(np.float32(scale) * np.float32(weight_scale)) for weight_scale in weights.quantization.scales)
    spec = TensorSpec(INT32.type, Quantization(scales, (0,) * len(scales)))
    if not lower.is_constant("bias"):
        bias = lower.writer.tensor(spec, lower.shape("bias"))
        lower.copy(lower.input("bias"), bias)
        return bias
    constants, bias = lower.network.constants, lower.positions["bias"]
    return lower.writer.constant(spec, constants.shape(bias), constants.value(bias))
