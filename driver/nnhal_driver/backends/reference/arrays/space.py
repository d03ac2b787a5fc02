"""Kernels of DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND and CHANNEL_SHUFFLE.

They only copy: an axis is split in two, the parts are transposed, and joined again.
"""

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import input_as_nhwc, kernel, pad_array, to_layout
from nnhal_driver.operations.arrays.space import block_side, block_sides, space_paddings
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.DEPTH_TO_SPACE)
def depth_to_space(call: OperationCall) -> AnyArray:
    """Move channels [block row, block column, depth] to the block of their pixel."""
    side = block_side(call)
    image = input_as_nhwc(call)
    batches, height, width, depth = image.shape
    split = image.reshape(batches, height, width, side, side, depth // side**2)
    return to_layout(call, split.transpose(0, 1, 3, 2, 4, 5).reshape(batches, height * side, width * side, -1))


@kernel(OperationType.SPACE_TO_DEPTH)
def space_to_depth(call: OperationCall) -> AnyArray:
    """Move the pixels of a block to channels [block row, block column, depth]."""
    side = block_side(call)
    image = input_as_nhwc(call)
    batches, height, width, depth = image.shape
    split = image.reshape(batches, height // side, side, width // side, side, depth)
    return to_layout(call, split.transpose(0, 1, 3, 2, 4, 5).reshape(batches, height // side, width // side, -1))


@kernel(OperationType.BATCH_TO_SPACE_ND)
def batch_to_space_nd(call: OperationCall) -> AnyArray:
    """Move batches [block row, block column, batch] to the block of their pixel."""
    down, across = block_sides(call)
    image = input_as_nhwc(call)
    batches, height, width, depth = image.shape
    split = image.reshape(down, across, batches // (down * across), height, width, depth)
    return to_layout(call, split.transpose(2, 3, 0, 4, 1, 5).reshape(-1, height * down, width * across, depth))


@kernel(OperationType.SPACE_TO_BATCH_ND)
def space_to_batch_nd(call: OperationCall) -> AnyArray:
    """Move the pixels of a block to batches [block row, block column, batch]. Padding has the real value 0."""
    down, across = block_sides(call)
    pairs = [(0, 0), *space_paddings(call), (0, 0)]
    image = pad_array(input_as_nhwc(call), pairs, call.operand("input").zero_point)
    batches, height, width, depth = image.shape
    split = image.reshape(batches, height // down, down, width // across, across, depth)
    return to_layout(call, split.transpose(2, 4, 0, 1, 3, 5).reshape(-1, height // down, width // across, depth))


@kernel(OperationType.CHANNEL_SHUFFLE)
def channel_shuffle(call: OperationCall) -> AnyArray:
    """Transpose channels [group, number] to [number, group]."""
    x = call.array("input")
    axis = call.axis(x.ndim)
    split = x.reshape(*x.shape[:axis], call.integer("num_groups"), -1, *x.shape[axis + 1 :])
    return split.swapaxes(axis, axis + 1).reshape(x.shape)
