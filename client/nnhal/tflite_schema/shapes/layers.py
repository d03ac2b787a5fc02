"""Shapes of layers: convolutions, pooling, matrix products, resizing, recurrent layers."""

from collections.abc import Sequence
from math import prod

from nnhal.tflite_schema.enumerations import LSHProjectionType, LSTMKernelType, Padding
from nnhal.tflite_schema.shapes.rule import ShapeCall, Shapes, broadcast_shapes, shapes


def window_positions(size: int, window: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Return the number of positions of a window along a dimension."""
    available = size if padding == Padding.SAME else size - (window - 1) * dilation
    return -(-available // stride)


def _positions(call: ShapeCall, sizes: Sequence[int], window: Sequence[int], names: str = "hw") -> list[int]:
    """Return the number of positions of a window along each dimension."""
    result = []
    for name, size, extent in zip(names, sizes, window, strict=True):
        stride, dilation = call.option(f"stride_{name}", 1), call.option(f"dilation_{name}_factor", 1)
        result.append(window_positions(size, extent, stride, call.option("padding", 0), dilation))
    return result


@shapes("CONV_2D")
def conv_2d(call: ShapeCall) -> Shapes:
    """Infer the shape of a convolution."""
    image, (channels, *window, _) = call.shape(0), call.shape(1)
    return [(image[0], *_positions(call, image[1:3], window), channels)]


@shapes("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(call: ShapeCall) -> Shapes:
    """Infer the shape of a depthwise convolution."""
    image, (_, *window, channels) = call.shape(0), call.shape(1)
    return [(image[0], *_positions(call, image[1:3], window), channels)]


@shapes("CONV_3D")
def conv_3d(call: ShapeCall) -> Shapes:
    """Infer the shape of a convolution in three dimensions."""
    volume, (*window, _, channels) = call.shape(0), call.shape(1)
    return [(volume[0], *_positions(call, volume[1:4], window, "dhw"), channels)]


@shapes("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
def transpose_conv(call: ShapeCall) -> Shapes:
    """Infer the shape that the first input states."""
    return [tuple(call.integers(0))]


@shapes("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pool_2d(call: ShapeCall) -> Shapes:
    """Infer the shape of pooling."""
    image = call.shape(0)
    window = (call.option("filter_height", 0), call.option("filter_width", 0))
    return [(image[0], *_positions(call, image[1:3], window), image[3])]


@shapes("FULLY_CONNECTED")
def fully_connected(call: ShapeCall) -> Shapes:
    """Infer the shape of a fully connected layer: of rank 2 unless the dimensions are kept."""
    shape, (units, depth) = call.shape(0), call.shape(1)
    if len(call.outputs) > 1:
        return None
    if call.option("keep_num_dims", False):
        return [(*shape[:-1], units)] if shape[-1] == depth else None
    return [(prod(shape) // depth, units)] if prod(shape) % depth == 0 else None


@shapes("BATCH_MATMUL")
def batch_matmul(call: ShapeCall) -> Shapes:
    """Infer the shape of a product of matrices, whose other dimensions are broadcast."""
    left, right = call.shapes()
    rows = left[-1] if call.option("adj_x", False) else left[-2]
    columns = right[-2] if call.option("adj_y", False) else right[-1]
    return [(*broadcast_shapes(left[:-2], right[:-2]), rows, columns)]


@shapes("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(call: ShapeCall) -> Shapes:
    """Infer the shape of an image with a constant new size."""
    batches, _, _, channels = call.shape(0)
    height, width = call.integers(1)
    return [(batches, height, width, channels)]


@shapes("RFFT2D")
def rfft2d(call: ShapeCall) -> Shapes:
    """Infer the shape of a Fourier transform of real numbers: half of the last dimension, and one more."""
    height, width = call.integers(1)
    return [(*call.shape(0)[:-2], height, width // 2 + 1)]


@shapes("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(call: ShapeCall) -> Shapes:
    """Infer the shape of an LSTM from its output state."""
    return [(*call.shape(0)[:-1], call.shape(18)[-1])]


@shapes("LSTM")
def lstm(call: ShapeCall) -> Shapes:
    """Infer the shape of one step from the recurrent weights. The basic kernel also has a state and scratch buffers."""
    *batches, depth = call.shape(0)
    if call.option("kernel_type", LSTMKernelType.FULL) == LSTMKernelType.FULL:
        return [(*batches, call.shape(8)[1])]
    units = call.shape(1)[-1]
    return [(*batches, length) for length in (units, units, depth + units, 4 * units)]


@shapes("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional(call: ShapeCall) -> Shapes:
    """Infer the shapes of both directions from their weights: one output for each, or one with both."""
    is_lstm = call.name == "BIDIRECTIONAL_SEQUENCE_LSTM"
    units = [call.shape(8)[1], call.shape(25)[1]] if is_lstm else [call.shape(1)[0], call.shape(5)[0]]
    units = [sum(units)] if call.option("merge_outputs", False) else units
    return [(*call.shape(0)[:2], length) for length in units]


@shapes("UNIDIRECTIONAL_SEQUENCE_RNN", "RNN")
def rnn(call: ShapeCall) -> Shapes:
    """Infer the shape of a recurrent layer from its state."""
    return [(*call.shape(0)[:-1], call.shape(4)[-1])]


@shapes("SVDF")
def svdf(call: ShapeCall) -> Shapes:
    """Infer the shape of a layer of filters of a given rank."""
    return [(call.shape(0)[0], call.shape(1)[0] // call.option("rank", 1))]


@shapes("EMBEDDING_LOOKUP")
def embedding_lookup(call: ShapeCall) -> Shapes:
    """Infer the shape of rows of a table."""
    return [(*call.shape(0), *call.shape(1)[1:])]


@shapes("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(call: ShapeCall) -> Shapes:
    """Infer the shape of combined rows of a table, for constant positions."""
    return [(*call.integers(2)[:-1], *call.shape(4)[1:])]


@shapes("HASHTABLE_LOOKUP")
def hashtable_lookup(call: ShapeCall) -> Shapes:
    """Infer the shape of rows of a table, and of the marks of those that were found."""
    return [(call.shape(0)[0], *call.shape(2)[1:]), (call.shape(0)[0],)]


@shapes("LSH_PROJECTION")
def lsh_projection(call: ShapeCall) -> Shapes:
    """Infer one number for each hash, or one for each of its bits."""
    hashes, bits = call.shape(0)
    return [(hashes,)] if call.option("type", 0) == LSHProjectionType.SPARSE else [(hashes * bits,)]


@shapes("REDUCE_WINDOW")
def reduce_window(call: ShapeCall) -> Shapes:
    """Infer the number of positions of constant windows."""
    windows = zip(call.shape(0), *(call.integers(i) for i in (2, 3, 4)), strict=True)
    return [tuple(window_positions(n, size, step, Padding.VALID, dilation) for n, size, step, dilation in windows)]


@shapes("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(call: ShapeCall) -> Shapes:
    """Infer a constant number of boxes, for version 5 also of scores, and a scalar."""
    return [(call.integers(2)[0],)] * (len(call.outputs) - 1) + [()]
