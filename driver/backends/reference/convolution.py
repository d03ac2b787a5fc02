"""Kernels of CONV_2D, DEPTHWISE_CONV_2D and GROUPED_CONV_2D.

A convolution is a matrix product over the image's patches, or a sum of products for each channel. Integers go through
floats as well: see `requantization`. Stored values are multiplied as they are, and padding is their zero point.
"""

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from driver.backends.reference.kernel import activated, floats, is_quantized, kernel, laid_out, nhwc
from driver.backends.reference.requantization import Reals, centred, folded_bias, requantized
from driver.operations.call import Call
from driver.operations.convolution import filter_window
from driver.operations.geometry import Window
from nnhal.types import AnyArray, OperationType

Product = Callable[[Call, Reals, Reals, Window], Reals]
"""Sums of products of a padded image and the arranged weights: [..., depth_out]."""

_LONGEST_RUN = 2**15
"""Elements for which a depthwise convolution's weights are repeated: they are kept."""


def convolved(call: Call, summed: tuple[int, ...], arranged: Callable[[Reals], Reals], product: Product) -> AnyArray:
    """The steps that all convolutions share.

    Args:
        call: the run.
        summed: the axes of the filter that are summed over.
        arranged: brings the filter into the form that `product` takes.
        product: multiplies.
    """
    space = filter_window(call)
    if is_quantized(call, "input"):
        weights = call.once("weights", lambda: arranged(centred(call, "filter", summed)), "filter")
        image = padded(nhwc(call), space, call.operand("input").zero_point)
        sums = product(call, image.astype(weights.dtype), weights, space)
        out = requantized(call, sums, folded_bias(call, "filter", summed), "filter")
    else:
        weights = call.once("weights", lambda: arranged(floats(call, "filter")), "filter")
        sums = product(call, padded(nhwc(call), space, 0).astype(np.float32, copy=False), weights, space)
        sums += floats(call, "bias")
        out = activated(call, sums)
    return laid_out(call, out.reshape(space.output_shape(out.shape[-1])))


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
    """Patches times the filter as a matrix [cells, depth_out]."""
    return convolved(
        call,
        (1, 2, 3),
        lambda filter_: np.ascontiguousarray(filter_.reshape(len(filter_), -1).T),
        lambda _, image, matrix, space: patches(image, space) @ matrix,
    )


@kernel(OperationType.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(call: Call) -> AnyArray:
    """For each channel the sum of the cells under the window times the filter."""
    return convolved(call, (0, 1, 2), lambda filter_: filter_[0], _depthwise)


def _depthwise(call: Call, image: Reals, weights: Reals, space: Window) -> Reals:
    """[batches, out_height, out_width, depth_out].

    With stride 1 the cells under neighbouring windows lie one after the other, so that a row of the output is one run
    of products with the weights, repeated: numpy is much faster with one long run than with many short ones.
    """
    rows, columns = space.height, space.width
    multiplier = call.integer("depth_multiplier")
    image = np.ascontiguousarray(image) if multiplier == 1 else np.repeat(image, multiplier, axis=3)
    joined = columns.out if columns.stride == 1 and columns.out * weights.shape[2] <= _LONGEST_RUN else 1
    runs = call.once(f"weights, {joined} times", lambda: np.tile(weights, (1, 1, joined)), "filter")
    # computed: numpy may say anything of a dimension of 1, and the stride of the channels is used for a whole run
    batch, row, column, channel = (prod(image.shape[axis:]) * image.itemsize for axis in range(1, 5))
    cells = as_strided(
        image,
        (space.batches, rows.out, columns.out // joined, runs.shape[2], rows.filter, columns.filter),
        (batch, row * rows.stride, column * columns.stride, channel, row * rows.dilation, column * columns.dilation),
    )
    sums: Reals = np.einsum("nhwcij,ijc->nhwc", cells, runs)
    return sums.reshape(space.output_shape(weights.shape[2]))


@kernel(OperationType.GROUPED_CONV_2D)
def grouped_conv_2d(call: Call) -> AnyArray:
    """For each group of channels its patches times its filters as a matrix."""
    return convolved(call, (1, 2, 3), lambda filter_: filter_, _grouped)


def _grouped(call: Call, image: Reals, filter_: Reals, space: Window) -> Reals:
    """Sums of products: [positions, depth_out]."""
    groups = call.integer("num_groups")
    matrices = filter_.reshape(groups, len(filter_) // groups, -1).transpose(0, 2, 1)
    cells = matrices.shape[1]
    rows = patches(image, space)
    split = rows.reshape(len(rows), -1, groups, space.channels // groups).transpose(2, 0, 1, 3)
    sums: Reals = split.reshape(groups, len(rows), cells) @ matrices
    return sums.transpose(1, 0, 2).reshape(len(rows), -1)
