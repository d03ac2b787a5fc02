"""CONV_2D, DEPTHWISE_CONV_2D and GROUPED_CONV_2D."""

import numpy as np

from driver.backends.litert.limits import Limits
from driver.backends.litert.lowering import INT32, Lowering, converter, flipped, signed, unsigned
from driver.backends.litert.operations.padding import PADDINGS, padded, padding_scheme
from driver.backends.litert.writer import Quantization, Spec
from driver.operations.convolution import filter_window
from nnhal.types import OperationType

FILTERED = Limits(product=("input", "filter"))


@converter(OperationType.CONV_2D, limits=FILTERED)
def conv_2d(lower: Lowering) -> None:
    """Filters are [depth_out, height, width, depth_in] in both."""
    convolution(lower, "CONV_2D", "Conv2DOptions")


@converter(OperationType.GROUPED_CONV_2D, limits=FILTERED)
def grouped_conv_2d(lower: Lowering) -> None:
    """The engine sees from the shapes how many groups there are."""
    convolution(lower, "CONV_2D", "Conv2DOptions")


@converter(OperationType.DEPTHWISE_CONV_2D, limits=FILTERED)
def depthwise_conv_2d(lower: Lowering) -> None:
    """Filters are [1, height, width, depth_out] in both."""
    multiplier = lower.call.integer("depth_multiplier")
    convolution(lower, "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", depthMultiplier=multiplier)


def convolution(lower: Lowering, operator: str, options: str, **fields: object) -> None:
    """What the three have in common."""
    space = filter_window(lower.call)
    image, filter_, bias = arguments(lower, "filter")
    out = lower.image_output(like=like_input(lower, image))
    scheme = padding_scheme(space)
    if scheme is None:
        image, scheme = padded(lower, image, space), "VALID"
    lower.emit(
        operator,
        [image, filter_, bias],
        [out],
        options,
        padding=PADDINGS[scheme],
        strideH=space.height.stride,
        strideW=space.width.stride,
        dilationHFactor=space.height.dilation,
        dilationWFactor=space.width.dilation,
        fusedActivationFunction=lower.call.activation(),
        **fields,
    )


def like_input(lower: Lowering, image: int) -> Spec:
    """What a convolution's output holds: 8 bits of the sign that its input was given."""
    spec = lower.spec("output")
    if spec.quantization is None or spec.type == lower.writer.specs[image].type:
        return spec
    return flipped(spec)


def arguments(lower: Lowering, weights: str) -> tuple[int, int, int]:
    """Image (NHWC), weights and bias of a convolution or matrix product, as the engine takes them.

    The engine's signed kernels take weights with zero point 0 only, its unsigned ones no weights of several scales: the
    values are moved to the other sign where that is needed.
    """
    image, spec = lower.image(), lower.spec(weights)
    if spec.quantization is None:
        return image, lower.input(weights), lower.input("bias")
    if lower.call.channel_quant(weights) is not None:
        image = lower.as_spec(image, signed(lower.writer.specs[image]))
    elif spec.type == "INT8" and spec.quantization.zero_points != (0,):
        spec = unsigned(spec)
        image = lower.as_spec(image, unsigned(lower.writer.specs[image]))
    return image, _stored(lower, weights, spec), _bias(lower, spec)


def _stored(lower: Lowering, name: str, spec: Spec) -> int:
    """Weights as `spec` holds them: as they are, or unsigned."""
    if spec == lower.spec(name):
        return lower.input(name)
    if not lower.is_constant(name):
        return lower.as_spec(lower.input(name), spec)
    value = lower.network.constants[lower.position[name]]
    return lower.writer.constant(spec, value.shape, lambda: value.view(np.uint8) ^ np.uint8(128))


def _bias(lower: Lowering, weights: Spec) -> int:
    """The bias, with the scales that follow from image and weights: NNAPI gives none where there are several."""
    assert weights.quantization is not None
    scale = lower.call.operand("input").scale
    scales = tuple(float(np.float32(scale) * np.float32(each)) for each in weights.quantization.scales)
    spec = Spec(INT32.type, Quantization(scales, (0,) * len(scales)))
    if not lower.is_constant("bias"):
        made = lower.temporary(spec, lower.shape("bias"))
        lower.copy(lower.input("bias"), made)
        return made
    value = lower.network.constants[lower.position["bias"]]
    return lower.writer.constant(spec, value.shape, value)
