"""DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND and CHANNEL_SHUFFLE."""

from driver.backends.litert.lowering import Lowering, converter
from driver.operations.space import block_side, block_sides, margins
from nnhal.types import OperationType

_BLOCKS = {
    OperationType.DEPTH_TO_SPACE: ("DEPTH_TO_SPACE", "DepthToSpaceOptions"),
    OperationType.SPACE_TO_DEPTH: ("SPACE_TO_DEPTH", "SpaceToDepthOptions"),
}


@converter(*_BLOCKS)
def blocks(lower: Lowering) -> None:
    """The order of elements is the same."""
    operator, options = _BLOCKS[OperationType(lower.call.view.type)]
    out = lower.image_output(like=lower.spec("input"))
    lower.emit(operator, [lower.image()], [out], options, blockSize=block_side(lower.call))


@converter(OperationType.BATCH_TO_SPACE_ND)
def batch_to_space_nd(lower: Lowering) -> None:
    """The engine can crop as well."""
    sides, crops = lower.constant(list(block_sides(lower.call))), lower.constant([[0, 0], [0, 0]])
    lower.emit("BATCH_TO_SPACE_ND", [lower.image(), sides, crops], [lower.image_output(like=lower.spec("input"))])


@converter(OperationType.SPACE_TO_BATCH_ND)
def space_to_batch_nd(lower: Lowering) -> None:
    """Padding has the real value 0 in both."""
    sides, pads = lower.constant(list(block_sides(lower.call))), lower.constant(margins(lower.call))
    lower.emit("SPACE_TO_BATCH_ND", [lower.image(), sides, pads], [lower.image_output(like=lower.spec("input"))])


@converter(OperationType.CHANNEL_SHUFFLE)
def channel_shuffle(lower: Lowering) -> None:
    """Channels [group, number] as [number, group]: two dimensions change places."""
    shape = lower.shape("input")
    axis = lower.call.axis(len(shape))
    groups = lower.call.integer("num_groups")
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    order = list(range(len(split)))
    order[axis], order[axis + 1] = axis + 1, axis
    moved = lower.transpose(lower.reshape(lower.input("input"), split), order)
    lower.copy(moved, lower.output(like=lower.spec("input")))
