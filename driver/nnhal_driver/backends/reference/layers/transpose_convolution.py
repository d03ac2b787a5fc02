"""Kernels of TRANSPOSE_CONV_2D.

For each cell of the filter, the image times that cell is added to the output. Sums of integers are exact: see
`requantization`.
"""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import (
    apply_activation,
    as_float32,
    input_as_nhwc,
    is_quantized,
    kernel,
    matrix_product,
    to_layout,
)
from nnhal_driver.backends.reference.numerics.requantization import Reals, center_weights, requantize_sums
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.layers.transpose_convolution import TransposedAxis, transposed_axes


@kernel(OperationType.TRANSPOSE_CONV_2D)
def transpose_conv_2d(call: OperationCall) -> AnyArray:
    """Add the filter, scaled by each input element, to the output."""
    axes = transposed_axes(call)
    image = input_as_nhwc(call)
    if is_quantized(call, "input"):
        weights = call.memoize_constant("weights", lambda: center_weights(call, "filter", (1, 2, 3)), "filter")
        values = image.astype(weights.dtype) - weights.dtype.type(call.operand("input").zero_point)
        out = requantize_sums(
            call, _crop(_scatter_add(call, values, weights, axes), axes), call.array("bias"), "filter"
        )
    else:
        sums = _scatter_add(call, image.astype(np.float32, copy=False), as_float32(call, "filter"), axes)
        out = apply_activation(call, _crop(sums, axes) + as_float32(call, "bias"))
    return to_layout(call, out)


def _scatter_add(
    call: OperationCall, image: Reals, weights: Reals, axes: tuple[TransposedAxis, TransposedAxis]
) -> Reals:
    """Return the sums before cropping: [batches, full height, full width, depth_out]."""
    rows, columns = axes
    depth_out, _, _, depth_in = weights.shape
    out = np.zeros((image.shape[0], rows.full, columns.full, depth_out), image.dtype)
    positions = image.reshape(-1, depth_in)
    for i in range(rows.filter):
        for j in range(columns.filter):
            call.check()
            products = matrix_product(call, positions, weights[:, i, j].T)
            out[:, _reached_cells(rows, i), _reached_cells(columns, j)] += products.reshape(*image.shape[:3], depth_out)
    return out


def _reached_cells(axis: TransposedAxis, cell: int) -> slice:
    """Return the output cells that one cell of the filter reaches, for all input positions."""
    return slice(cell, cell + (axis.input - 1) * axis.stride + 1, axis.stride)


def _crop(full: Reals, axes: tuple[TransposedAxis, TransposedAxis]) -> Reals:
    """Crop to the cells of the output. Cells that no filter reaches are 0."""
    rows, columns = axes
    cropped = full[:, rows.head : rows.head + rows.out, columns.head : columns.head + columns.out]
    if cropped.shape[1:3] == (rows.out, columns.out):
        return cropped
    out = np.zeros((len(full), rows.out, columns.out, full.shape[3]), full.dtype)
    out[:, : cropped.shape[1], : cropped.shape[2]] = cropped
    return out
