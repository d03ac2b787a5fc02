"""Shapes of DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND and CHANNEL_SHUFFLE."""

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.geometry import image_shape, shape_in_layout
from nnhal_driver.operations.shape import shape_rule


def block_side(call: OperationCall) -> int:
    """Return the scalar `block_size`.

    Raises:
        HalError: GENERAL_FAILURE: the value is less than 1.
    """
    side = call.integer("block_size")
    call.require(side >= 1, f"block_size is {side}; it must be at least 1")
    return side


def block_sides(call: OperationCall) -> tuple[int, int]:
    """Return the tensor `block_size`: height and width of a block, in both layouts.

    Raises:
        HalError: GENERAL_FAILURE: the shape is not [2], or a value is less than 1.
    """
    height, width = call.vector("block_size", 2)
    call.require(min(height, width) >= 1, f"block_size is {[height, width]}; both must be at least 1")
    return height, width


def space_paddings(call: OperationCall) -> list[list[int]]:
    """Return the argument `paddings` as [[top, bottom], [left, right]], in both layouts.

    Raises:
        HalError: GENERAL_FAILURE: the shape is not [2, 2], or a value is negative.
    """
    shape = call.shape("paddings")
    call.require(shape == (2, 2), f"paddings has shape {list(shape)}; it must be [2, 2]")
    top, bottom, left, right = call.integers("paddings")
    values = [[top, bottom], [left, right]]
    call.require(min(map(min, values)) >= 0, f"paddings is {values}; none may be negative")
    return values


@shape_rule(OperationType.DEPTH_TO_SPACE, empty=False, failure=ErrorStatus.INVALID_ARGUMENT, requantizes=False)
def depth_to_space(call: OperationCall) -> list[Shape]:
    """Return [batches, height * block_size, width * block_size, depth / block_size^2]."""
    batches, height, width, depth = image_shape(call)
    side = block_side(call)
    call.require(depth % side**2 == 0, f"input has {depth} channels, not a multiple of {side} * {side}")
    return [shape_in_layout(call, (batches, height * side, width * side, depth // side**2))]


@shape_rule(OperationType.SPACE_TO_DEPTH, empty=False, failure=ErrorStatus.INVALID_ARGUMENT, requantizes=False)
def space_to_depth(call: OperationCall) -> list[Shape]:
    """Return [batches, height / block_size, width / block_size, depth * block_size^2]."""
    batches, height, width, depth = image_shape(call)
    side = block_side(call)
    call.require(height % side == width % side == 0, f"input is {height} x {width}, not a multiple of {side}")
    return [shape_in_layout(call, (batches, height // side, width // side, depth * side**2))]


@shape_rule(OperationType.BATCH_TO_SPACE_ND, empty=False, failure=ErrorStatus.INVALID_ARGUMENT, requantizes=False)
def batch_to_space_nd(call: OperationCall) -> list[Shape]:
    """Return [batches / block cells, height * block height, width * block width, depth]."""
    batches, height, width, depth = image_shape(call)
    down, across = block_sides(call)
    call.require(batches % (down * across) == 0, f"input has {batches} batches, not a multiple of {down} * {across}")
    return [shape_in_layout(call, (batches // (down * across), height * down, width * across, depth))]


@shape_rule(OperationType.SPACE_TO_BATCH_ND, empty=False, failure=ErrorStatus.INVALID_ARGUMENT, requantizes=False)
def space_to_batch_nd(call: OperationCall) -> list[Shape]:
    """Return [batches * block cells, padded height / block height, padded width / block width, depth]."""
    batches, height, width, depth = image_shape(call)
    down, across = block_sides(call)
    rows, columns = space_paddings(call)
    height, width = height + sum(rows), width + sum(columns)
    call.require(
        height % down == width % across == 0,
        f"the padded input is {height} x {width}, not a multiple of {down} x {across}",
    )
    return [shape_in_layout(call, (batches * down * across, height // down, width // across, depth))]


@shape_rule(OperationType.CHANNEL_SHUFFLE, empty=False, rank_4=True, requantizes=False)
def channel_shuffle(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    shape = call.shape("input")
    axis = call.axis(len(shape))
    groups = call.integer("num_groups")
    call.require(groups >= 1, f"num_groups is {groups}; it must be at least 1")
    call.require(shape[axis] % groups == 0, f"input has {shape[axis]} channels, not a multiple of {groups} groups")
    return [shape]
