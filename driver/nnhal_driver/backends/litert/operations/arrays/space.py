"""Converters of DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND and CHANNEL_SHUFFLE."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter
from nnhal_driver.operations.arrays.space import block_side, block_sides, space_paddings


@converter(OperationType.DEPTH_TO_SPACE, OperationType.SPACE_TO_DEPTH)
def blocks(lower: Lowering) -> None:
    """Emit the engine's operator, which has the same order of elements."""
    out, side = lower.image_output(like=lower.spec("input")), block_side(lower.call)
    lower.emit(lower.operation_name, [lower.image_input()], [out], lower.options_name, block_size=side)


@converter(OperationType.BATCH_TO_SPACE_ND)
def batch_to_space_nd(lower: Lowering) -> None:
    """Pass crops of 0: the engine can also crop."""
    sides, crops = lower.constant(list(block_sides(lower.call))), lower.constant([[0, 0], [0, 0]])
    lower.emit("BATCH_TO_SPACE_ND", [lower.image_input(), sides, crops], [lower.image_output(like=lower.spec("input"))])


@converter(OperationType.SPACE_TO_BATCH_ND)
def space_to_batch_nd(lower: Lowering) -> None:
    """Pass blocks and paddings as tensors. Padding has the real value 0 in both."""
    sides, pads = lower.constant(list(block_sides(lower.call))), lower.constant(space_paddings(lower.call))
    lower.emit("SPACE_TO_BATCH_ND", [lower.image_input(), sides, pads], [lower.image_output(like=lower.spec("input"))])


@converter(OperationType.CHANNEL_SHUFFLE)
def channel_shuffle(lower: Lowering) -> None:
    """Transpose channels [group, number] to [number, group]."""
    shape = lower.shape("input")
    axis = lower.call.axis(len(shape))
    groups = lower.call.integer("num_groups")
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    order = list(range(len(split)))
    order[axis], order[axis + 1] = axis + 1, axis
    moved = lower.transpose(lower.reshape(lower.input("input"), split), order)
    lower.copy(moved, lower.output(like=lower.spec("input")))
