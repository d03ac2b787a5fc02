"""Shapes of MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, ARGMAX and ARGMIN."""

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import shape_rule


def reduction_axes(call: OperationCall, rank: int) -> tuple[int, ...]:
    """Return the argument `axes`, counted from the start, in ascending order, without duplicates.

    Raises:
        HalError: GENERAL_FAILURE: the rank is not 1, or an axis is outside [-rank, rank).
    """
    axes = call.vector("axes")  # an axis may be repeated
    call.require(all(-rank <= axis < rank for axis in axes), f"axes are {axes}; each must be in {-rank}..{rank - 1}")
    return tuple(sorted({axis % rank for axis in axes}))


def reduced_shape(call: OperationCall) -> Shape:
    """Return the input's shape with the reduced dimensions 1 (keep_dims) or removed, or [1] if all are removed.

    `keep_dims` is set if it is greater than 0: MEAN has an INT32 for it, the other operations a BOOL.

    Raises:
        HalError: GENERAL_FAILURE: `axes` is invalid.
    """
    shape = call.shape("input")
    axes = reduction_axes(call, len(shape))
    if call.integer("keep_dims") > 0:
        return tuple(1 if i in axes else length for i, length in enumerate(shape))
    return tuple(length for i, length in enumerate(shape) if i not in axes) or (1,)


@shape_rule(OperationType.MEAN, empty=False, failure=ErrorStatus.INVALID_ARGUMENT, rank_4=True, requantizes=False)
@shape_rule(
    OperationType.REDUCE_ALL,
    OperationType.REDUCE_ANY,
    OperationType.REDUCE_MAX,
    OperationType.REDUCE_MIN,
    OperationType.REDUCE_PROD,
    OperationType.REDUCE_SUM,
    empty=False,
    rank_4=True,
    requantizes=False,
)
def reduction(call: OperationCall) -> list[Shape]:
    """Return the reduced shape of the input."""
    return [reduced_shape(call)]


@shape_rule(OperationType.ARGMAX, OperationType.ARGMIN, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def argmax(call: OperationCall) -> list[Shape]:
    """Return the shape of the input without the axis, or [1] if no dimension remains."""
    shape = call.shape("input")
    axis = call.axis(len(shape))
    return [(*shape[:axis], *shape[axis + 1 :]) or (1,)]
