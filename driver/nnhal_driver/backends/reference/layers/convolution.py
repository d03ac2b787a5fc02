"""Kernels of CONV_2D, DEPTHWISE_CONV_2D and GROUPED_CONV_2D.

A convolution is a matrix product over the image's patches, or a sum of products for each channel. Integer sums are
computed in floats too: see `requantization`. Stored values are multiplied unchanged, and padding is their zero point.
"""

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.division import Region
from nnhal_driver.backends.reference.kernel import (
    apply_activation,
    as_float32,
    input_as_nhwc,
    is_quantized,
    kernel,
    matrix_product,
    pad_array,
    tiles,
    to_layout,
)
from nnhal_driver.backends.reference.numerics.requantization import (
    Reals,
    center_weights,
    fold_zero_point,
    requantize_sums,
)
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.geometry import Window
from nnhal_driver.operations.layers.convolution import filter_window

Product = Callable[[OperationCall, Reals, Reals, Window], Reals]
"""Returns sums of products of a padded image and the arranged weights: [..., depth_out]."""

MultiplyRows = Callable[[Reals], Reals]
"""Returns the products of patches, [positions, cells], with the weights: [positions, depth_out]."""

_COPY_COST = 8
"""Cost of a cell of a patch that is copied, in multiply-adds."""
_LONGEST_RUN = 2**15
"""Maximum number of repeated weights of a depthwise convolution. They are cached."""


def convolve(
    call: OperationCall, summed: tuple[int, ...], arrange: Callable[[Reals], Reals], product: Product
) -> AnyArray:
    """Compute a convolution: the steps that all kinds share.

    The sums are over the axes `summed` of the filter. `arrange` converts it to the form that `product` takes.
    """
    space = filter_window(call)
    if is_quantized(call, "input"):
        weights = call.memoize_constant("weights", lambda: arrange(center_weights(call, "filter", summed)), "filter")
        image = pad_image(input_as_nhwc(call), space, call.operand("input").zero_point)
        sums = product(call, image.astype(weights.dtype), weights, space)
        out = requantize_sums(call, sums, fold_zero_point(call, "filter", summed), "filter")
    else:
        weights = call.memoize_constant("weights", lambda: arrange(as_float32(call, "filter")), "filter")
        sums = product(call, pad_image(input_as_nhwc(call), space, 0).astype(np.float32, copy=False), weights, space)
        sums += as_float32(call, "bias")
        out = apply_activation(call, sums)
    return to_layout(call, out.reshape(space.output_shape(out.shape[-1])))


def pad_image(image: AnyArray, space: Window, fill: float) -> AnyArray:
    """Return an image, NHWC, with its padding."""
    return pad_array(image, space.paddings, fill) if any(map(any, space.paddings)) else image


def view_patches(image: AnyArray, space: Window) -> AnyArray:
    """Return for each output position the cells under the window: a view [batches, height, width, .., channels]."""
    rows, columns = space.height, space.width
    if rows.filter == columns.filter == 1:
        return image[:, :: rows.stride, :: columns.stride]
    views = sliding_window_view(image, (rows.size, columns.size), axis=(1, 2))
    windows = views[:, :: rows.stride, :: columns.stride, :, :: rows.dilation, :: columns.dilation]
    return windows.transpose(0, 1, 2, 4, 5, 3)


def multiply_patches(call: OperationCall, image: Reals, space: Window, cost: int, multiply: MultiplyRows) -> Reals:
    """Multiply the patches of a padded image as matrices with a row for each output position, tile by tile.

    The cost is in multiply-adds for one output position. The products are [batches, out_height, out_width, columns].
    """
    patches = view_patches(image, space)
    cells = prod(patches.shape[3:])

    def product(region: Region) -> Reals:
        rows = patches[region]
        products = multiply(rows.reshape(-1, cells))
        return products.reshape(*rows.shape[:3], products.shape[-1])

    return _join_tiles(call, image, patches.shape[:3], cost + _COPY_COST * cells, product)


def _join_tiles(
    call: OperationCall, image: Reals, shape: Shape, cost: int, compute: Callable[[Region], Reals]
) -> Reals:
    """Compute the output in tiles, [batches, height, width, ..]. The cost of a position is in multiply-adds."""
    out: Reals | None = None
    for region in tiles(call, shape, cost) if prod(shape) else [(slice(None),)]:
        part = compute(region)
        if part.shape[:3] == shape:
            return part
        if out is None:
            out = np.empty_like(image, part.dtype, order="C", shape=(*shape, *part.shape[3:]))
        out[region] = part
    assert out is not None
    return out


@kernel(OperationType.CONV_2D)
def conv_2d(call: OperationCall) -> AnyArray:
    """Multiply patches by the filter as a matrix [cells, depth_out]."""
    return convolve(
        call,
        (1, 2, 3),
        lambda filter_: np.ascontiguousarray(filter_.reshape(len(filter_), -1).T),
        lambda call, image, matrix, space: multiply_patches(
            call, image, space, matrix.size, lambda rows: matrix_product(call, rows, matrix)
        ),
    )


@kernel(OperationType.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(call: OperationCall) -> AnyArray:
    """Sum, for each channel, the cells under the window times the filter."""
    return convolve(call, (0, 1, 2), lambda filter_: filter_[0], _sum_depthwise)


def _sum_depthwise(call: OperationCall, image: Reals, weights: Reals, space: Window) -> Reals:
    """Return sums of products: [batches, out_height, out_width, depth_out].

    With stride 1 the cells under neighboring windows are contiguous. A row of the output is then one run of products
    with the repeated weights. numpy is much faster with one long run than with many short ones.
    """
    rows, columns = space.height, space.width
    multiplier = call.integer("depth_multiplier")
    if multiplier > 1:
        image = np.repeat(image, multiplier, axis=3)
    image = image if image.flags.c_contiguous else image.copy()
    joined = columns.out if columns.stride == 1 and columns.out * weights.shape[2] <= _LONGEST_RUN else 1
    runs = call.memoize_constant(f"weights, {joined} times", lambda: np.tile(weights, (1, 1, joined)), "filter")
    # computed by hand: numpy's stride of a dimension of 1 is arbitrary, and a run uses the stride of the channels
    batch, row, column, channel = (prod(image.shape[axis:]) * image.itemsize for axis in range(1, 5))
    cells = as_strided(
        image,
        (space.batches, rows.out, columns.out // joined, runs.shape[2], rows.filter, columns.filter),
        (batch, row * rows.stride, column * columns.stride, channel, row * rows.dilation, column * columns.dilation),
    )
    sums = _join_tiles(
        call, image, cells.shape[:3], 2 * runs.size, lambda region: np.einsum("nhwcij,ijc->nhwc", cells[region], runs)
    )
    return sums.reshape(space.output_shape(weights.shape[2]))


@kernel(OperationType.GROUPED_CONV_2D)
def grouped_conv_2d(call: OperationCall) -> AnyArray:
    """Multiply, for each group of channels, its patches by its filters as a matrix."""
    return convolve(call, (1, 2, 3), lambda filter_: filter_, _multiply_groups)


def _multiply_groups(call: OperationCall, image: Reals, filter_: Reals, space: Window) -> Reals:
    """Return sums of products: [batches, out_height, out_width, depth_out]."""
    groups = call.integer("num_groups")
    matrices = filter_.reshape(groups, len(filter_) // groups, -1).transpose(0, 2, 1)
    cells = matrices.shape[1]

    def multiply(rows: Reals) -> Reals:
        split = rows.reshape(len(rows), -1, groups, space.channels // groups).transpose(2, 0, 1, 3)
        sums = matrix_product(call, split.reshape(groups, len(rows), cells), matrices)
        return sums.transpose(1, 0, 2).reshape(len(rows), -1)

    return multiply_patches(call, image, space, matrices.size, multiply)
