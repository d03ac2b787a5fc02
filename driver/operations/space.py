"""Shapes of DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND and CHANNEL_SHUFFLE."""

from driver.operations.call import Call, Shape
from driver.operations.geometry import image_shape, in_layout
from driver.operations.shape import limit_rank, same_quantization, shape_rule
from nnhal.types import ErrorStatus, OperationType


def block_side(call: Call) -> int:
    """The scalar `block_size`.

    Raises:
        HalError: GENERAL_FAILURE: it is less than 1.
    """
    side = call.integer("block_size")
    call.require(side >= 1, f"block_size is {side}; it must be at least 1")
    return side


def block_sides(call: Call) -> tuple[int, int]:
    """The tensor `block_size`: height and width of a block, in both layouts.

    Raises:
        HalError: GENERAL_FAILURE: its shape is not [2], or one is less than 1.
    """
    height, width = call.vector("block_size", 2)
    call.require(min(height, width) >= 1, f"block_size is {[height, width]}; both must be at least 1")
    return height, width


def margins(call: Call) -> list[list[int]]:
    """`paddings` as [[top, bottom], [left, right]], in both layouts.

    Raises:
        HalError: GENERAL_FAILURE: its shape is not [2, 2], or one is negative.
    """
    shape = call.shape("paddings")
    call.require(shape == (2, 2), f"paddings has shape {list(shape)}; it must be [2, 2]")
    values: list[list[int]] = call.array("paddings").tolist()
    call.require(min(map(min, values)) >= 0, f"paddings is {values}; none may be negative")
    return values


@shape_rule(OperationType.DEPTH_TO_SPACE, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def depth_to_space(call: Call) -> list[Shape]:
    """[batches, height * block_size, width * block_size, depth / block_size^2]."""
    batches, height, width, depth = image_shape(call)
    side = block_side(call)
    call.require(depth % side**2 == 0, f"input has {depth} channels, not a multiple of {side} * {side}")
    same_quantization(call)
    return [in_layout(call, (batches, height * side, width * side, depth // side**2))]


@shape_rule(OperationType.SPACE_TO_DEPTH, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def space_to_depth(call: Call) -> list[Shape]:
    """[batches, height / block_size, width / block_size, depth * block_size^2]."""
    batches, height, width, depth = image_shape(call)
    side = block_side(call)
    call.require(height % side == width % side == 0, f"input is {height} x {width}, not a multiple of {side}")
    same_quantization(call)
    return [in_layout(call, (batches, height // side, width // side, depth * side**2))]


@shape_rule(OperationType.BATCH_TO_SPACE_ND, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def batch_to_space_nd(call: Call) -> list[Shape]:
    """[batches / block cells, height * block height, width * block width, depth]."""
    batches, height, width, depth = image_shape(call)
    down, across = block_sides(call)
    call.require(batches % (down * across) == 0, f"input has {batches} batches, not a multiple of {down} * {across}")
    same_quantization(call)
    return [in_layout(call, (batches // (down * across), height * down, width * across, depth))]


@shape_rule(OperationType.SPACE_TO_BATCH_ND, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def space_to_batch_nd(call: Call) -> list[Shape]:
    """[batches * block cells, padded height / block height, padded width / block width, depth]."""
    batches, height, width, depth = image_shape(call)
    down, across = block_sides(call)
    rows, columns = margins(call)
    height, width = height + sum(rows), width + sum(columns)
    call.require(
        height % down == width % across == 0,
        f"the padded input is {height} x {width}, not a multiple of {down} x {across}",
    )
    same_quantization(call)
    return [in_layout(call, (batches * down * across, height // down, width // across, depth))]


@shape_rule(OperationType.CHANNEL_SHUFFLE, empty=False)
def channel_shuffle(call: Call) -> list[Shape]:
    """As the input."""
    shape = call.shape("input")
    limit_rank(call, "input")
    axis = call.axis(len(shape))
    groups = call.integer("num_groups")
    call.require(groups >= 1, f"num_groups is {groups}; it must be at least 1")
    call.require(shape[axis] % groups == 0, f"input has {shape[axis]} channels, not a multiple of {groups} groups")
    same_quantization(call)
    return [shape]
