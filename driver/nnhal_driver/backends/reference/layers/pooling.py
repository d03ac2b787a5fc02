"""Kernels of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

import numpy as np

from nnhal.types import AnyArray, OperandType, OperationType
from nnhal_driver.backends.reference.kernel import (
    Floats,
    apply_activation,
    input_as_nhwc,
    is_quantized,
    kernel,
    to_layout,
)
from nnhal_driver.backends.reference.layers.convolution import pad_image
from nnhal_driver.backends.reference.numerics.fixed_point import RANGES, Integers, activation_bounds, to_stored
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.geometry import Axis, Window
from nnhal_driver.operations.layers.pooling import pool_window


@kernel(OperationType.AVERAGE_POOL_2D)
def average_pool_2d(call: OperationCall) -> AnyArray:
    """Return the mean of the cells under the window that are inside the image."""
    space = pool_window(call)
    image = input_as_nhwc(call)
    if is_quantized(call, "input"):
        return to_layout(call, _quantized_mean(call, image, space))
    return to_layout(call, apply_activation(call, _mean(call, image.astype(np.float32, copy=False), space)))


@kernel(OperationType.L2_POOL_2D)
def l2_pool_2d(call: OperationCall) -> AnyArray:
    """Return the root mean square of the cells under the window that are inside the image."""
    squares = np.square(input_as_nhwc(call), dtype=np.float32)
    return to_layout(call, apply_activation(call, np.sqrt(_mean(call, squares, pool_window(call)))))


@kernel(OperationType.MAX_POOL_2D)
def max_pool_2d(call: OperationCall) -> AnyArray:
    """Return the largest of the cells under the window that are inside the image."""
    space = pool_window(call)
    image = input_as_nhwc(call)
    if not is_quantized(call, "input"):
        padded = pad_image(image.astype(np.float32, copy=False), space, -np.inf)
        largest = _reduce_windows(call, padded, space, np.maximum)
        return to_layout(call, apply_activation(call, largest))
    output = call.operand("output")
    padded = pad_image(image, space, RANGES[output.type][0])
    largest = _reduce_windows(call, padded, space, np.maximum)
    return to_layout(call, np.clip(largest, *activation_bounds(output, call.activation()), out=largest))


def _mean(call: OperationCall, image: Floats, space: Window) -> Floats:
    sums = _reduce_windows(call, pad_image(image, space, 0), space, np.add)
    mean: Floats = (sums / space.cell_counts()).astype(np.float32, copy=False)
    return mean


def _quantized_mean(call: OperationCall, image: AnyArray, space: Window) -> AnyArray:
    """Return the mean of stored values, rounded to nearest, ties up (unsigned) or away from zero (signed)."""
    output = call.operand("output")
    sums: Integers = _reduce_windows(call, pad_image(image.astype(np.int64), space, 0), space, np.add)
    counts = space.cell_counts()
    if output.type == OperandType.TENSOR_QUANT8_ASYMM:
        mean: Integers = (sums + counts // 2) // counts
    else:
        mean = np.sign(sums) * ((np.abs(sums) + counts // 2) // counts)
    return to_stored(mean, output, call.activation())


def _reduce_windows(call: OperationCall, image: AnyArray, space: Window, combine: np.ufunc) -> AnyArray:
    """Combine the cells of each window, first along columns, then along rows, into a new array."""
    combined = _reduce_along(call, 1, space.height, image, combine)
    return _reduce_along(call, 2, space.width, combined, combine)


def _reduce_along(call: OperationCall, dimension: int, axis: Axis, image: AnyArray, combine: np.ufunc) -> AnyArray:
    """Combine the cells of each window along one axis into a new array."""
    before = (slice(None),) * dimension
    span = (axis.out - 1) * axis.stride + 1
    out = image[(*before, slice(0, span, axis.stride))].copy()
    for cell in range(1, axis.filter):
        call.check()
        combine(out, image[(*before, slice(cell, cell + span, axis.stride))], out=out)
    return out
