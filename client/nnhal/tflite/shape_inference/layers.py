"""Shapes of layers: convolutions, pooling, matrix products, resizing, recurrent layers."""

from collections.abc import Sequence
from math import prod

import numpy as np
from tflite import BuiltinOperator, Padding

from nnhal.tflite.custom_options import CustomPadding, transpose_conv_options
from nnhal.tflite.shape_inference.rule import ShapeCall, Shapes, shapes


def _positions(call: ShapeCall, sizes: Sequence[int], window: Sequence[int], names: str = "HW") -> list[int]:
    """Return the number of positions of a window along each dimension."""
    result = []
    for name, size, extent in zip(names, sizes, window, strict=True):
        stride, dilation = call.option(f"Stride{name}", 1), call.option(f"Dilation{name}Factor", 1)
        reach = (extent - 1) * dilation + 1
        available = size if call.option("Padding", 0) == Padding.SAME else size - reach + 1
        result.append(-(-available // stride))
    return result


@shapes(BuiltinOperator.CONV_2D)
def conv_2d(call: ShapeCall) -> Shapes:
    """Infer the shape of a convolution."""
    image, (channels, *window, _) = call.shape(0), call.shape(1)
    return [(image[0], *_positions(call, image[1:3], window), channels)]


@shapes(BuiltinOperator.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(call: ShapeCall) -> Shapes:
    """Infer the shape of a depthwise convolution."""
    image, (_, *window, channels) = call.shape(0), call.shape(1)
    return [(image[0], *_positions(call, image[1:3], window), channels)]


@shapes(BuiltinOperator.CONV_3D)
def conv_3d(call: ShapeCall) -> Shapes:
    """Infer the shape of a convolution in three dimensions."""
    volume, (*window, _, channels) = call.shape(0), call.shape(1)
    return [(volume[0], *_positions(call, volume[1:4], window, "DHW"), channels)]


@shapes(BuiltinOperator.TRANSPOSE_CONV, BuiltinOperator.CONV_3D_TRANSPOSE)
def transpose_conv(call: ShapeCall) -> Shapes:
    """Infer the shape that the first input states."""
    return [tuple(call.integers(0))]


@shapes(BuiltinOperator.CUSTOM)
def custom(call: ShapeCall) -> Shapes:
    """Infer the shape of Convolution2DTransposeBias."""
    if call.operator.custom_name != "Convolution2DTransposeBias":
        return None
    options = transpose_conv_options(call.operator)
    strides = options.stride_height, options.stride_width
    image, (channels, *window, _) = call.shape(0), call.shape(1)
    sizes = [length * stride for length, stride in zip(image[1:3], strides, strict=True)]
    if options.padding == CustomPadding.VALID:
        sizes = [n + max(w - s, 0) for n, w, s in zip(sizes, window, strides, strict=True)]
    return [(image[0], *sizes, channels)]


@shapes(BuiltinOperator.AVERAGE_POOL_2D, BuiltinOperator.MAX_POOL_2D, BuiltinOperator.L2_POOL_2D)
def pool_2d(call: ShapeCall) -> Shapes:
    """Infer the shape of pooling."""
    image = call.shape(0)
    window = (call.option("FilterHeight", 0), call.option("FilterWidth", 0))
    return [(image[0], *_positions(call, image[1:3], window), image[3])]


@shapes(BuiltinOperator.FULLY_CONNECTED)
def fully_connected(call: ShapeCall) -> Shapes:
    """Infer the shape of a fully connected layer: of rank 2 unless the dimensions are kept."""
    shape, (units, depth) = call.shape(0), call.shape(1)
    if len(call.operator.outputs) > 1:
        return None
    if call.option("KeepNumDims", False):
        return [(*shape[:-1], units)] if shape[-1] == depth else None
    return [(prod(shape) // depth, units)] if prod(shape) % depth == 0 else None


@shapes(BuiltinOperator.BATCH_MATMUL)
def batch_matmul(call: ShapeCall) -> Shapes:
    """Infer the shape of a product of matrices, whose other dimensions are broadcast."""
    left, right = call.shapes()
    rows = left[-1] if call.option("AdjX", False) else left[-2]
    columns = right[-2] if call.option("AdjY", False) else right[-1]
    return [(*np.broadcast_shapes(left[:-2], right[:-2]), rows, columns)]


@shapes(BuiltinOperator.RESIZE_BILINEAR, BuiltinOperator.RESIZE_NEAREST_NEIGHBOR)
def resize(call: ShapeCall) -> Shapes:
    """Infer the shape of an image with a constant new size."""
    batches, _, _, channels = call.shape(0)
    height, width = call.integers(1)
    return [(batches, height, width, channels)]


@shapes(BuiltinOperator.RFFT2D)
def rfft2d(call: ShapeCall) -> Shapes:
    """Infer the shape of a Fourier transform of real numbers: half of the last dimension, and one more."""
    height, width = call.integers(1)
    return [(*call.shape(0)[:-2], height, width // 2 + 1)]


@shapes(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM)
def sequence_lstm(call: ShapeCall) -> Shapes:
    """Infer the shape of an LSTM from its output state."""
    return [(*call.shape(0)[:-1], call.shape(18)[-1])]


@shapes(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN, BuiltinOperator.RNN)
def rnn(call: ShapeCall) -> Shapes:
    """Infer the shape of a recurrent layer from its state."""
    return [(*call.shape(0)[:-1], call.shape(4)[-1])]


@shapes(BuiltinOperator.SVDF)
def svdf(call: ShapeCall) -> Shapes:
    """Infer the shape of a layer of filters of a given rank."""
    return [(call.shape(0)[0], call.shape(1)[0] // call.option("Rank", 1))]


@shapes(BuiltinOperator.EMBEDDING_LOOKUP)
def embedding_lookup(call: ShapeCall) -> Shapes:
    """Infer the shape of rows of a table."""
    return [(*call.shape(0), *call.shape(1)[1:])]
