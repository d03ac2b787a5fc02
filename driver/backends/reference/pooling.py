"""Kernels of AVERAGE_POOL_2D."""

import numpy as np

from driver.backends.reference.convolution import laid_out, nhwc, padded
from driver.backends.reference.fixed_point import Integers, activation_bounds
from driver.backends.reference.kernel import Floats, activated, is_quantized, kernel
from driver.operations.call import Call
from driver.operations.geometry import Axis, Window
from driver.operations.pooling import pool_window
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType


@kernel(OperationType.AVERAGE_POOL_2D)
def average_pool_2d(call: Call) -> AnyArray:
    """The mean of the cells under the window that lie inside the image."""
    space = pool_window(call)
    image = nhwc(call.array("input"), space)
    if is_quantized(call, "input"):
        return laid_out(_quantized_mean(call, image, space), space)
    sums = _window_sums(padded(image.astype(np.float32, copy=False), space, 0), space)
    mean: Floats = sums / _counts(space).astype(np.float32)
    return laid_out(activated(call, mean), space)


def _quantized_mean(call: Call, image: AnyArray, space: Window) -> AnyArray:
    """Sums of stored values by their number, halves up (unsigned) or away from zero (signed)."""
    output = call.operand("output")
    sums: Integers = _window_sums(padded(image.astype(np.int64), space, 0), space)
    counts = _counts(space)
    if output.type == OperandType.TENSOR_QUANT8_ASYMM:
        mean: Integers = (sums + counts // 2) // counts
    else:
        mean = np.sign(sums) * ((np.abs(sums) + counts // 2) // counts)
    low, high = activation_bounds(output, call.activation())
    return np.clip(mean, low, high).astype(DTYPES[output.type])


def _window_sums(image: AnyArray, space: Window) -> AnyArray:
    """Sums over the cells of each window, rows first."""
    rows, columns = space.height, space.width
    out = np.zeros((image.shape[0], rows.out, columns.out, image.shape[3]), image.dtype)
    for i in range(rows.filter):
        for j in range(columns.filter):
            out += image[
                :,
                i : i + (rows.out - 1) * rows.stride + 1 : rows.stride,
                j : j + (columns.out - 1) * columns.stride + 1 : columns.stride,
            ]
    return out


def _counts(space: Window) -> Integers:
    """How many cells of each window lie inside the image: [out_height, out_width, 1]."""
    return np.outer(_inside(space.height), _inside(space.width))[..., np.newaxis]


def _inside(axis: Axis) -> Integers:
    starts = np.arange(axis.out, dtype=np.int64) * axis.stride - axis.before
    return np.minimum(starts + axis.filter, axis.input) - np.maximum(starts, 0)
