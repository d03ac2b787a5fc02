"""Shapes of MEAN, REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, ARGMAX and ARGMIN."""

from driver.operations.call import Call, Shape
from driver.operations.shape import limit_rank, same_quantization, shape_rule
from nnhal.types import ErrorStatus, OperationType


def axes_of(call: Call, rank: int) -> tuple[int, ...]:
    """The argument `axes`: counted from the start, ascending, each once.

    Raises:
        HalError: GENERAL_FAILURE: it is not of rank 1, or one is outside [-rank, rank).
    """
    axes = call.vector("axes")
    call.require(all(-rank <= axis < rank for axis in axes), f"axes are {axes}; each must be in {-rank}..{rank - 1}")
    return tuple(sorted({axis % rank for axis in axes}))


def reduced(call: Call) -> Shape:
    """The input's shape with the reduced dimensions 1 (keep_dims) or left out; [1] when none is left.

    `keep_dims` is set where it is above 0: MEAN has an INT32 for it, the others a BOOL.

    Raises:
        HalError: GENERAL_FAILURE: `axes` do not fit the input.
    """
    shape = call.shape("input")
    axes = axes_of(call, len(shape))
    if call.integer("keep_dims") > 0:
        return tuple(1 if i in axes else length for i, length in enumerate(shape))
    return tuple(length for i, length in enumerate(shape) if i not in axes) or (1,)


@shape_rule(OperationType.MEAN, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
@shape_rule(
    OperationType.REDUCE_ALL,
    OperationType.REDUCE_ANY,
    OperationType.REDUCE_MAX,
    OperationType.REDUCE_MIN,
    OperationType.REDUCE_PROD,
    OperationType.REDUCE_SUM,
    empty=False,
)
def reduction(call: Call) -> list[Shape]:
    """As the input, reduced; quantised as the input."""
    same_quantization(call)
    limit_rank(call, "input")
    return [reduced(call)]


@shape_rule(OperationType.ARGMAX, OperationType.ARGMIN, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def argmax(call: Call) -> list[Shape]:
    """As the input, less the axis; [1] when none is left."""
    shape = call.shape("input")
    axis = call.axis(len(shape))
    return [(*shape[:axis], *shape[axis + 1 :]) or (1,)]
