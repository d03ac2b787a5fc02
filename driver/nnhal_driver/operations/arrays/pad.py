"""Shapes of PAD, PAD_V2 and MIRROR_PAD."""

from enum import IntEnum

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import require_max_rank, require_same_quantization, shape_rule

Paddings = list[tuple[int, int]]


class MirrorMode(IntEnum):
    """Mirroring at the edge: SYMMETRIC repeats the element at the edge, REFLECT does not."""

    REFLECT = 0
    SYMMETRIC = 1


def padding_pairs(call: OperationCall, rank: int) -> Paddings:
    """Return the argument `paddings`: (before, after) for each of `rank` dimensions.

    Raises:
        HalError: GENERAL_FAILURE: the shape is not [rank, 2], or a value is negative.
    """
    shape = call.shape("paddings")
    call.require(shape == (rank, 2), f"paddings has shape {list(shape)}; it must be {[rank, 2]}")
    values = call.integers("paddings")
    pairs = list(zip(values[::2], values[1::2], strict=True))
    call.require(all(before >= 0 <= after for before, after in pairs), f"paddings {pairs} has a negative value")
    return pairs


def _padded_shape(shape: Shape, paddings: Paddings) -> Shape:
    return tuple(before + length + after for length, (before, after) in zip(shape, paddings, strict=True))


@shape_rule(OperationType.PAD, OperationType.PAD_V2, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def pad(call: OperationCall) -> list[Shape]:
    """Return the shape of the input with the paddings added."""
    require_same_quantization(call)
    shape = call.shape("input")
    require_max_rank(call, "input")
    return [_padded_shape(shape, padding_pairs(call, len(shape)))]


@shape_rule(OperationType.MIRROR_PAD, empty=False)
def mirror_pad(call: OperationCall) -> list[Shape]:
    """Return the shape of the input with the paddings added."""
    shape, mode = call.shape("input"), call.integer("mode")
    call.require(mode in list(MirrorMode), f"mode is {mode}; it must be 0 or 1")
    paddings = padding_pairs(call, len(shape))
    for i, (length, pair) in enumerate(zip(shape, paddings, strict=True)):
        limit = length if mode == MirrorMode.SYMMETRIC else length - 1
        call.require(max(pair) <= limit, f"paddings of dimension {i} are {list(pair)}; each must be at most {limit}")
    return [_padded_shape(shape, paddings)]
