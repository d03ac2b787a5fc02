"""Shapes of PAD, PAD_V2 and MIRROR_PAD."""

from enum import IntEnum

from driver.operations.call import Call, Shape
from driver.operations.shape import limit_rank, same_quantization, shape_rule
from nnhal.types import ErrorStatus, OperationType

Paddings = list[tuple[int, int]]


class MirrorMode(IntEnum):
    """Whether the element at the edge is repeated: REFLECT no, SYMMETRIC yes."""

    REFLECT = 0
    SYMMETRIC = 1


def paddings_of(call: Call, rank: int) -> Paddings:
    """The argument `paddings`: before and after, for each of `rank` dimensions.

    Raises:
        HalError: GENERAL_FAILURE: its shape is not [rank, 2], or a value is negative.
    """
    shape = call.shape("paddings")
    call.require(shape == (rank, 2), f"paddings has shape {list(shape)}; it must be {[rank, 2]}")
    pairs = [(int(before), int(after)) for before, after in call.array("paddings")]
    call.require(all(before >= 0 <= after for before, after in pairs), f"paddings {pairs} has a negative value")
    return pairs


def _padded(shape: Shape, paddings: Paddings) -> Shape:
    return tuple(before + length + after for length, (before, after) in zip(shape, paddings, strict=True))


@shape_rule(OperationType.PAD, OperationType.PAD_V2, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def pad(call: Call) -> list[Shape]:
    """As the input, with the paddings added."""
    same_quantization(call)
    shape = call.shape("input")
    limit_rank(call, "input")
    return [_padded(shape, paddings_of(call, len(shape)))]


@shape_rule(OperationType.MIRROR_PAD, empty=False)
def mirror_pad(call: Call) -> list[Shape]:
    """As the input, with the paddings added."""
    shape, mode = call.shape("input"), call.integer("mode")
    call.require(mode in list(MirrorMode), f"mode is {mode}; it must be 0 or 1")
    paddings = paddings_of(call, len(shape))
    for i, (length, pair) in enumerate(zip(shape, paddings, strict=True)):
        most = length if mode == MirrorMode.SYMMETRIC else length - 1
        call.require(max(pair) <= most, f"paddings of dimension {i} are {list(pair)}; each must be at most {most}")
    return [_padded(shape, paddings)]
