"""Kernels of CONV_2D, DEPTHWISE_CONV_2D and GROUPED_CONV_2D.

A convolution is a matrix product over the image's patches. Integer ones go through a floating-point product too, which
is exact as long as no sum of products can leave the integers that the type holds: float32 up to 2^24, float64 up to
2^53.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from driver.backends.reference.fixed_point import Integers, activation_bounds, encode, rescale
from driver.backends.reference.kernel import activated, floats, is_quantized, kernel, laid_out, nhwc
from driver.operations.call import Call
from driver.operations.convolution import filter_window
from driver.operations.geometry import Window
from nnhal.types import DTYPES, AnyArray, OperationType

Reals: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Requantization:
    """From accumulator to output: one multiplier, or one for each output channel, as (Q, e)."""

    mantissa: int | Integers
    exponent: int | Integers


def requantization(call: Call, weights: str) -> Requantization:
    """Multipliers double(float32(input scale * weight scale)) / double(output scale)."""
    input_ = np.float32(call.operand("input").scale)
    output = float(call.operand("output").scale)
    quant = call.channel_quant(weights)
    if quant is None:
        return Requantization(*encode(float(input_ * np.float32(call.operand(weights).scale)) / output))
    pairs = [encode(float(input_ * np.float32(scale)) / output) for scale in quant.scales]
    return Requantization(np.array([q for q, _ in pairs], np.int64), np.array([e for _, e in pairs], np.int64))


def requantized(call: Call, sums: Reals, weights: str) -> AnyArray:
    """Exact integer sums, channels last, plus the bias, as stored values of the output."""
    scaling = call.once("requantization", lambda: requantization(call, weights))
    bias = call.array("bias").astype(np.int64)
    output = call.operand("output")
    low, high = activation_bounds(output, call.activation())
    stored = rescale(sums.astype(np.int64) + bias, scaling.mantissa, scaling.exponent)
    stored += output.zero_point
    return np.clip(stored, low, high, out=stored).astype(DTYPES[output.type])


def exact_dtype(weights: AnyArray, axes: tuple[int, ...]) -> type[np.float32] | type[np.float64]:
    """The narrowest float in which sums of 8-bit values times `weights` over `axes` are exact in any order."""
    largest = 255 * np.abs(weights.astype(np.int64)).sum(axis=axes).max(initial=0)
    return np.float32 if largest < 2**24 else np.float64


def centred_filter(call: Call) -> Callable[[], Reals]:
    """Makes the filter less its zero point, as floats; along which axes it is summed depends on the operation."""
    axes = (0, 1, 2) if call.view.type == OperationType.DEPTHWISE_CONV_2D else (1, 2, 3)

    def make() -> Reals:
        weights = call.array("filter").astype(np.int32) - call.operand("filter").zero_point
        return weights.astype(exact_dtype(weights, axes))

    return make


def padded(image: AnyArray, space: Window, fill: float) -> AnyArray:
    """The image, NHWC, with its padding."""
    rows, columns = space.height, space.width
    if not (rows.before or rows.after or columns.before or columns.after):
        return image
    shape = (
        image.shape[0],
        rows.input + rows.before + rows.after,
        columns.input + columns.before + columns.after,
        image.shape[3],
    )
    out = np.full(shape, fill, image.dtype)
    out[:, rows.before : rows.before + rows.input, columns.before : columns.before + columns.input] = image
    return out


def patches(image: AnyArray, space: Window) -> AnyArray:
    """Rows of a matrix: for each output position the cells under the window, as [filter rows, columns, channels]."""
    rows, columns = space.height, space.width
    if rows.filter == columns.filter == 1:
        return image[:, :: rows.stride, :: columns.stride].reshape(-1, image.shape[3])
    views = sliding_window_view(image, (rows.size, columns.size), axis=(1, 2))
    taken = views[:, :: rows.stride, :: columns.stride, :, :: rows.dilation, :: columns.dilation]
    cells = rows.filter * columns.filter * image.shape[3]
    return taken.transpose(0, 1, 2, 4, 5, 3).reshape(-1, cells)


@kernel(OperationType.CONV_2D)
def conv_2d(call: Call) -> AnyArray:
    """Patches times the filter as a matrix."""
    space = filter_window(call)
    image = nhwc(call)
    if is_quantized(call, "input"):
        matrix = call.once("matrix", lambda: _matrix(centred_filter(call)()), "filter")
        zero_point = call.operand("input").zero_point
        centred = image.astype(matrix.dtype) - matrix.dtype.type(zero_point)
        out = requantized(call, patches(padded(centred, space, 0), space) @ matrix, "filter")
    else:
        matrix = call.once("matrix", lambda: _matrix(floats(call, "filter")), "filter")
        sums = patches(padded(image.astype(np.float32, copy=False), space, 0), space) @ matrix
        out = activated(call, sums + floats(call, "bias"))
    return laid_out(call, out.reshape(space.output_shape(matrix.shape[-1])))


def _matrix(filter_: Reals) -> Reals:
    """[depth_out, rows, columns, depth_in] as [cells, depth_out], contiguous."""
    return np.ascontiguousarray(filter_.reshape(filter_.shape[0], -1).T)


@kernel(OperationType.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(call: Call) -> AnyArray:
    """A sum over the filter's cells of the shifted image."""
    space = filter_window(call)
    image = nhwc(call)
    multiplier = call.integer("depth_multiplier")
    if is_quantized(call, "input"):
        weights = call.once("weights", centred_filter(call), "filter")
        centred = image.astype(weights.dtype) - weights.dtype.type(call.operand("input").zero_point)
        out = requantized(call, _depthwise(centred, weights, space, multiplier), "filter")
    else:
        weights = floats(call, "filter")
        sums = _depthwise(image.astype(np.float32, copy=False), weights, space, multiplier)
        out = activated(call, sums + floats(call, "bias"))
    return laid_out(call, out)


def _depthwise(image: Reals, weights: Reals, space: Window, multiplier: int) -> Reals:
    """[batches, out_height, out_width, depth_in * multiplier]: products summed over rows, then columns."""
    image = padded(image, space, 0)
    if multiplier > 1:
        image = np.repeat(image, multiplier, axis=3)
    rows, columns = space.height, space.width
    out = np.zeros((space.batches, rows.out, columns.out, image.shape[3]), image.dtype)
    for i in range(rows.filter):
        top = i * rows.dilation
        for j in range(columns.filter):
            left = j * columns.dilation
            shifted = image[
                :,
                top : top + (rows.out - 1) * rows.stride + 1 : rows.stride,
                left : left + (columns.out - 1) * columns.stride + 1 : columns.stride,
            ]
            out += shifted * weights[0, i, j]
    return out


@kernel(OperationType.GROUPED_CONV_2D)
def grouped_conv_2d(call: Call) -> AnyArray:
    """For each group of channels its patches times its filters as a matrix."""
    space = filter_window(call)
    image = nhwc(call)
    groups = call.integer("num_groups")
    if is_quantized(call, "input"):
        matrices = call.once("matrices", lambda: _matrices(centred_filter(call)(), groups), "filter", "num_groups")
        centred = image.astype(matrices.dtype) - matrices.dtype.type(call.operand("input").zero_point)
        out = requantized(call, _grouped(centred, matrices, space), "filter")
    else:
        matrices = _matrices(floats(call, "filter"), groups)
        sums = _grouped(image.astype(np.float32, copy=False), matrices, space)
        out = activated(call, sums + floats(call, "bias"))
    return laid_out(call, out.reshape(space.output_shape(out.shape[-1])))


def _matrices(filter_: Reals, groups: int) -> Reals:
    """[depth_out, rows, columns, depth_group] as [groups, cells, depth_out / groups]."""
    return filter_.reshape(groups, filter_.shape[0] // groups, -1).transpose(0, 2, 1)


def _grouped(image: Reals, matrices: Reals, space: Window) -> Reals:
    """Sums of products: [positions, depth_out]."""
    groups, cells, _ = matrices.shape
    rows = patches(padded(image, space, 0), space)
    split = rows.reshape(len(rows), -1, groups, space.channels // groups).transpose(2, 0, 1, 3)
    sums: Reals = split.reshape(groups, len(rows), cells) @ matrices
    return sums.transpose(1, 0, 2).reshape(len(rows), -1)
