"""Operators on images: convolutions, pooling and resizing."""

from collections.abc import Sequence

import numpy as np

from nnhal.tflite_schema import Padding
from nnhal.tflite_schema.shapes.layers import window_positions
from nnhal.types import AnyArray
from nnhal_driver.backends.litert.submodel.limits import max_depthwise_channels
from nnhal_driver.backends.litert.submodel.model import SubModelTensor
from nnhal_driver.backends.litert.submodel.operator_check import (
    OperatorCheck,
    elements,
    rule,
    scale,
    scales,
)

_CONV_TYPES = [
    "f32 f32 f32? -> f32",
    "f32 i8 f32? -> f32",
    "i8 i8 i32? -> i8",
    "u8 u8 i32? -> u8",
    "i16 i8 i32|i64? -> i16",
]
_MAX_MULTIPLIER = 2.0**8


def _check_windows(op: OperatorCheck, sizes: Sequence[int], windows: Sequence[int], names: str = "hw") -> None:
    """Check strides, dilations and padding, and that windows fit into an image."""
    op.positive(*(f"stride_{name}" for name in names))
    op.activation()
    op.require_range("padding", op.option("padding"), Padding.SAME, Padding.VALID)
    for name, size, window in zip(names, sizes, windows, strict=True):
        dilation = f"dilation_{name}_factor"
        if dilation in op.operator.options:
            op.positive(dilation)
        reach = (window - 1) * (op.option(dilation) if dilation in op.operator.options else 1) + 1
        op.require_range(f"{name} of the window", reach, 1, 2**24)
        op.require(
            reach <= size or op.option("padding") == Padding.SAME,
            f"{name} of the window is {reach}; the image has {size}",
        )


def check_weights(op: OperatorCheck, dimension: int, channels: int, bias: int = 2) -> None:
    """Check weights and bias: shape of the bias, quantized dimension, and the factors between the scales.

    Args:
        op: the operator.
        dimension: dimension of the weights, input 1, that has the output channels.
        channels: the number of output channels.
        bias: index of the bias.
    """
    op.input_shape(bias, (channels,))
    weights, tensor, result = op.input(1), op.input(0), op.outputs[0]
    quantization = weights.quantization
    if quantization is None:
        return
    if len(quantization.scales) > 1:
        op.require(
            quantization.dimension == dimension,
            f"quantized_dimension of input 1 is {quantization.dimension}; expected {dimension}",
        )
        op.require(len(quantization.scales) == channels, f"input 1 has {len(quantization.scales)} scales")
    if tensor.type == "FLOAT32":
        return
    factors = scale(tensor) * scales(quantization) / scale(result)
    op.multiplier("smallest input scale * weight scale / output scale", float(factors.min()), 2.0**-40, _MAX_MULTIPLIER)
    op.multiplier("largest input scale * weight scale / output scale", float(factors.max()), 2.0**-40, _MAX_MULTIPLIER)
    _check_bias(op, tensor, scales(quantization), bias)


def _check_bias(op: OperatorCheck, tensor: SubModelTensor, weight_scales: AnyArray, index: int) -> None:
    bias = op.optional(index)
    if bias is None or bias.quantization is None:
        return
    expected = scale(tensor) * weight_scales
    found = scales(bias.quantization)
    op.require(len(found) in (1, len(expected)), f"input {index} has {len(found)} scales; expected {len(expected)}")
    if not np.allclose(found, expected, rtol=0.02):
        op.fail(f"scale of input {index} is not the product of the scales of inputs 0 and 1")


@rule("CONV_2D", types=_CONV_TYPES, options="Conv2DOptions", per_channel=[1, 2])
def conv_2d(op: OperatorCheck) -> None:
    """Check a convolution, also with groups."""
    image, (channels, height, width, depth) = op.shape(0, rank=4), op.shape(1, rank=4)
    groups = image[3] // depth
    op.require(image[3] == depth * groups and groups, f"input 0 has {image[3]} channels; the filter has {depth}")
    op.require(channels % groups == 0, f"{channels} output channels are not a multiple of {groups} groups")
    op.require_range("quantized_bias_type", op.option("quantized_bias_type"), 0, 4)
    _check_windows(op, image[1:3], (height, width))
    op.bounded("the matrix of image patches", op.outputs[0].elements // channels * height * width * image[3])
    check_weights(op, 0, channels)
    op.work += op.outputs[0].elements * height * width * depth


@rule(
    "DEPTHWISE_CONV_2D",
    types=[types.replace("?", "") for types in _CONV_TYPES],
    options="DepthwiseConv2DOptions",
    per_channel=[1, 2],
)
def depthwise_conv_2d(op: OperatorCheck) -> None:
    """Check a convolution of each channel.

    The kernels read the bias without checking that there is one, and, if only the weights are quantized, a scale for
    each channel.
    """
    image, (first, height, width, channels) = op.shape(0, rank=4), op.shape(1, rank=4)
    op.require(first == 1, f"the filter has shape {list(op.input(1).shape)}; expected 1 in dimension 0")
    multiplier = channels // image[3]
    op.require(multiplier * image[3] == channels, f"{channels} channels are not a multiple of the input's {image[3]}")
    op.require_range("depth_multiplier", op.option("depth_multiplier"), multiplier, multiplier)
    if op.input(0).type != op.input(1).type or any(t is None or t.data is None for t in (op.input(1), op.optional(2))):
        op.require_range("the number of channels", channels, 1, max_depthwise_channels(op.input(1).type))
    _check_windows(op, image[1:3], (height, width))
    check_weights(op, 3, channels)
    quantization = op.input(1).quantization
    if op.input(0).type == "FLOAT32" and quantization is not None:
        found = len(quantization.scales)
        op.require(found == channels, f"input 1 has {found} scales; expected one for each of the {channels} channels")
    op.work += op.outputs[0].elements * height * width


@rule(
    "TRANSPOSE_CONV",
    types=[
        f"i32 {weights} {image} {bias}? -> {image}"
        for weights, image, bias in [
            ("f32", "f32", "f32"),
            ("i8", "i8", "i32"),
            ("u8", "u8", "i32"),
            ("i8", "i16", "i32|i64"),
        ]
    ],
    options="TransposeConvOptions",
    per_channel=[1, 3],
)
def transpose_conv(op: OperatorCheck) -> None:
    """Check a transposed convolution with a constant output shape."""
    (channels, height, width, depth), image = op.shape(1, rank=4), op.shape(2, rank=4)
    op.require_range("quantized_bias_type", op.option("quantized_bias_type"), 0, 4)
    op.require(image[3] == depth, f"input 2 has {image[3]} channels; the filter has {depth}")
    shape = op.integers(0, 4)
    op.require(min(shape) >= 1, f"input 0 is {shape}; expected at least 1")
    _check_windows(op, shape[1:3], (height, width))
    for name, size, window, result in zip("hw", image[1:3], (height, width), shape[1:3], strict=True):
        count = window_positions(result, window, op.option(f"stride_{name}"), op.option("padding"))
        op.require(count == size, f"input 0 is {shape}; an image of this size gives {count} in {name}, not {size}")
    op.require(shape[0] == image[0] and shape[3] == channels, f"input 0 is {shape}; expected {image[0]} and {channels}")
    op.bounded("the matrix of image patches", elements(image[:3]) * height * width * channels)
    _check_transposed_weights(op, channels)
    op.work += op.input(2).elements * height * width * channels


def _check_transposed_weights(op: OperatorCheck, channels: int) -> None:
    op.input_shape(3, (channels,))
    weights, tensor, result = op.input(1), op.input(2), op.outputs[0]
    if weights.quantization is None or tensor.type == "FLOAT32":
        return
    if len(weights.quantization.scales) > 1:
        op.require(weights.quantization.dimension == 0, "quantized_dimension of input 1 is not 0")
    if weights.type == "INT8":
        op.require(not weights.quantization.zero_points.any(), "zero_point of input 1 is not 0")
    factors = scale(tensor) * scales(weights.quantization) / scale(result)
    op.multiplier("smallest input scale * weight scale / output scale", float(factors.min()), 2.0**-40, _MAX_MULTIPLIER)
    op.multiplier("largest input scale * weight scale / output scale", float(factors.max()), 2.0**-40, _MAX_MULTIPLIER)
    _check_bias(op, tensor, scales(weights.quantization), 3)


@rule("CONV_3D", types=["f32 f32 f32? -> f32"], options="Conv3DOptions")
def conv_3d(op: OperatorCheck) -> None:
    """Check a convolution in three dimensions."""
    image, filter_ = op.shape(0, rank=5), op.shape(1, rank=5)
    op.require(image[4] == filter_[3], f"input 0 has {image[4]} channels; the filter has {filter_[3]}")
    _check_windows(op, image[1:4], filter_[:3], "dhw")
    op.bounded("the matrix of image patches", op.outputs[0].elements // filter_[4] * elements(filter_[:4]))
    op.input_shape(2, (filter_[4],))
    op.work += op.outputs[0].elements * elements(filter_[:4])


@rule("AVERAGE_POOL_2D", "MAX_POOL_2D", types=["T:f32|f16|i8|u8|i16 -> T"], options="Pool2DOptions")
@rule("L2_POOL_2D", types=["f32 -> f32"], options="Pool2DOptions")
def pool(op: OperatorCheck) -> None:
    """Check pooling, which keeps the quantization."""
    image = op.shape(0, rank=4)
    op.positive("filter_height", "filter_width")
    windows = (op.option("filter_height"), op.option("filter_width"))
    _check_windows(op, image[1:3], windows)
    if op.is_quantized:
        op.require(elements(windows) <= 2**15, f"the window has {elements(windows)} elements; at most {2**15}")
    op.work += op.outputs[0].elements * elements(windows)


@rule("RESIZE_BILINEAR", types=["T:f32|f16|i8|u8|i16 i32 -> T"], options="ResizeBilinearOptions", quantized=False)
@rule(
    "RESIZE_NEAREST_NEIGHBOR",
    types=["T:f32|f16|i8|u8|i16 i32 -> T"],
    options="ResizeNearestNeighborOptions",
    quantized=False,
)
def resize(op: OperatorCheck) -> None:
    """Check a resize to a constant size."""
    image = op.shape(0, rank=4)
    size = op.integers(1, 2)
    op.require(min(size) >= 1 and max(size) <= 2**15, f"input 1 is {size}; expected 1 to {2**15}")
    op.require(max(image[1:3]) <= 2**15, f"input 0 has shape {list(image)}; at most {2**15} are supported")
    op.require(
        op.operator.name == "RESIZE_NEAREST_NEIGHBOR"
        or not (op.option("align_corners") and op.option("half_pixel_centers")),
        "align_corners and half_pixel_centers are both set",
    )
