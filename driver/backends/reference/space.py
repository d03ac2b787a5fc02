"""Kernels of DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND and CHANNEL_SHUFFLE.

Pure copies: an axis is split in two, the parts change places, and are joined again.
"""

import numpy as np

from driver.backends.reference.kernel import kernel, laid_out, nhwc
from driver.operations.call import Call
from driver.operations.space import block_side, block_sides, margins
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.DEPTH_TO_SPACE)
def depth_to_space(call: Call) -> AnyArray:
    """Channels [block row, block column, depth] beside their pixel."""
    side = block_side(call)
    image = nhwc(call)
    batches, height, width, depth = image.shape
    split = image.reshape(batches, height, width, side, side, depth // side**2)
    return laid_out(call, split.transpose(0, 1, 3, 2, 4, 5).reshape(batches, height * side, width * side, -1))


@kernel(OperationType.SPACE_TO_DEPTH)
def space_to_depth(call: Call) -> AnyArray:
    """The pixels of a block as channels [block row, block column, depth]."""
    side = block_side(call)
    image = nhwc(call)
    batches, height, width, depth = image.shape
    split = image.reshape(batches, height // side, side, width // side, side, depth)
    return laid_out(call, split.transpose(0, 1, 3, 2, 4, 5).reshape(batches, height // side, width // side, -1))


@kernel(OperationType.BATCH_TO_SPACE_ND)
def batch_to_space_nd(call: Call) -> AnyArray:
    """Batches [block row, block column, batch] beside their pixel."""
    down, across = block_sides(call)
    image = nhwc(call)
    batches, height, width, depth = image.shape
    split = image.reshape(down, across, batches // (down * across), height, width, depth)
    return laid_out(call, split.transpose(2, 3, 0, 4, 1, 5).reshape(-1, height * down, width * across, depth))


@kernel(OperationType.SPACE_TO_BATCH_ND)
def space_to_batch_nd(call: Call) -> AnyArray:
    """The pixels of a block as batches [block row, block column, batch]; padding has the real value 0."""
    down, across = block_sides(call)
    image = np.pad(nhwc(call), [(0, 0), *margins(call), (0, 0)], constant_values=call.operand("input").zero_point)
    batches, height, width, depth = image.shape
    split = image.reshape(batches, height // down, down, width // across, across, depth)
    return laid_out(call, split.transpose(2, 4, 0, 1, 3, 5).reshape(-1, height // down, width // across, depth))


@kernel(OperationType.CHANNEL_SHUFFLE)
def channel_shuffle(call: Call) -> AnyArray:
    """Channels [group, number] as [number, group]."""
    x = call.array("input")
    axis = call.axis(x.ndim)
    split = x.reshape(*x.shape[:axis], call.integer("num_groups"), -1, *x.shape[axis + 1 :])
    return split.swapaxes(axis, axis + 1).reshape(x.shape)
