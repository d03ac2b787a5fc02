"""Kernels of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

import numpy as np

from driver.backends.reference.convolution import padded
from driver.backends.reference.fixed_point import RANGES, Integers, activation_bounds
from driver.backends.reference.kernel import Floats, activated, is_quantized, kernel, laid_out, nhwc
from driver.operations.call import Call
from driver.operations.geometry import Axis, Window
from driver.operations.pooling import pool_window
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType


@kernel(OperationType.AVERAGE_POOL_2D)
def average_pool_2d(call: Call) -> AnyArray:
    """The mean of the cells under the window that lie inside the image."""
    space = pool_window(call)
    image = nhwc(call)
    if is_quantized(call, "input"):
        return laid_out(call, _quantized_mean(call, image, space))
    return laid_out(call, activated(call, _mean(image.astype(np.float32, copy=False), space)))


@kernel(OperationType.L2_POOL_2D)
def l2_pool_2d(call: Call) -> AnyArray:
    """The root of the mean square of the cells under the window that lie inside the image."""
    squares = np.square(nhwc(call), dtype=np.float32)
    return laid_out(call, activated(call, np.sqrt(_mean(squares, pool_window(call)))))


@kernel(OperationType.MAX_POOL_2D)
def max_pool_2d(call: Call) -> AnyArray:
    """The largest of the cells under the window that lie inside the image."""
    space = pool_window(call)
    image = nhwc(call)
    if not is_quantized(call, "input"):
        largest = _folded(padded(image.astype(np.float32, copy=False), space, -np.inf), space, np.maximum)
        return laid_out(call, activated(call, largest))
    output = call.operand("output")
    largest = _folded(padded(image, space, RANGES[OperandType(output.type)][0]), space, np.maximum)
    return laid_out(call, np.clip(largest, *activation_bounds(output, call.activation()), out=largest))


def _mean(image: Floats, space: Window) -> Floats:
    sums = _folded(padded(image, space, 0), space, np.add)
    mean: Floats = (sums / _counts(space)).astype(np.float32, copy=False)
    return mean


def _quantized_mean(call: Call, image: AnyArray, space: Window) -> AnyArray:
    """Sums of stored values by their number, halves up (unsigned) or away from zero (signed)."""
    output = call.operand("output")
    sums: Integers = _folded(padded(image.astype(np.int64), space, 0), space, np.add)
    counts = _counts(space)
    if output.type == OperandType.TENSOR_QUANT8_ASYMM:
        mean: Integers = (sums + counts // 2) // counts
    else:
        mean = np.sign(sums) * ((np.abs(sums) + counts // 2) // counts)
    low, high = activation_bounds(output, call.activation())
    return np.clip(mean, low, high).astype(DTYPES[output.type])


def _folded(image: AnyArray, space: Window, combine: np.ufunc) -> AnyArray:
    """The cells of each window combined, as a new array: those of its columns, then what they gave."""
    return _folded_along(2, space.width, _folded_along(1, space.height, image, combine), combine)


def _folded_along(dimension: int, axis: Axis, image: AnyArray, combine: np.ufunc) -> AnyArray:
    """The cells of each window along one axis combined, as a new array."""
    before = (slice(None),) * dimension
    span = (axis.out - 1) * axis.stride + 1
    out = image[(*before, slice(0, span, axis.stride))].copy()
    for cell in range(1, axis.filter):
        combine(out, image[(*before, slice(cell, cell + span, axis.stride))], out=out)
    return out


def _counts(space: Window) -> Integers:
    """How many cells of each window lie inside the image: [out_height, out_width, 1]."""
    return np.outer(_inside(space.height), _inside(space.width))[..., np.newaxis]


def _inside(axis: Axis) -> Integers:
    starts = np.arange(axis.out, dtype=np.int64) * axis.stride - axis.before
    return np.minimum(starts + axis.filter, axis.input) - np.maximum(starts, 0)
