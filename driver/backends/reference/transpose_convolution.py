"""Kernels of TRANSPOSE_CONV_2D.

The image times one cell of the filter is what each input position adds to one cell of the output. Sums are exact for
integers, as `requantization` says.
"""

import numpy as np

from driver.backends.reference.kernel import activated, floats, is_quantized, kernel, laid_out, nhwc
from driver.backends.reference.requantization import Reals, centred, requantized
from driver.operations.call import Call
from driver.operations.transpose_convolution import SpreadAxis, spread
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.TRANSPOSE_CONV_2D)
def transpose_conv_2d(call: Call) -> AnyArray:
    """Filters scaled by the input, summed where they overlap."""
    axes = spread(call)
    image = nhwc(call)
    if is_quantized(call, "input"):
        weights = call.once("weights", lambda: centred(call, "filter", (1, 2, 3)), "filter")
        values = image.astype(weights.dtype) - weights.dtype.type(call.operand("input").zero_point)
        out = requantized(call, _cut(_summed(values, weights, axes), axes), call.array("bias"), "filter")
    else:
        sums = _summed(image.astype(np.float32, copy=False), floats(call, "filter"), axes)
        out = activated(call, _cut(sums, axes) + floats(call, "bias"))
    return laid_out(call, out)


def _summed(image: Reals, weights: Reals, axes: tuple[SpreadAxis, SpreadAxis]) -> Reals:
    """[batches, full height, full width, depth_out]."""
    rows, columns = axes
    depth_out, _, _, depth_in = weights.shape
    out = np.zeros((image.shape[0], rows.full, columns.full, depth_out), image.dtype)
    positions = image.reshape(-1, depth_in)
    for i in range(rows.filter):
        for j in range(columns.filter):
            added = positions @ weights[:, i, j].T
            out[:, _reached(rows, i), _reached(columns, j)] += added.reshape(*image.shape[:3], depth_out)
    return out


def _reached(axis: SpreadAxis, cell: int) -> slice:
    """Where one cell of the filter falls, for all input positions."""
    return slice(cell, cell + (axis.input - 1) * axis.stride + 1, axis.stride)


def _cut(full: Reals, axes: tuple[SpreadAxis, SpreadAxis]) -> Reals:
    """The cells of the output; those that no filter reaches are 0."""
    rows, columns = axes
    taken = full[:, rows.head : rows.head + rows.out, columns.head : columns.head + columns.out]
    if taken.shape[1:3] == (rows.out, columns.out):
        return taken
    out = np.zeros((len(full), rows.out, columns.out, full.shape[3]), full.dtype)
    out[:, : taken.shape[1], : taken.shape[2]] = taken
    return out
