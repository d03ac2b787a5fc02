"""Shapes of RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE and RANK."""

from math import prod

from driver.operations.call import Call, Shape
from driver.operations.reduction import axes_of
from driver.operations.shape import limit_rank, same_quantization, shape_rule
from nnhal.types import ErrorStatus, OperationType


def reshaped(call: Call) -> Shape:
    """The values of `shape`, with -1 replaced by what remains.

    Raises:
        HalError: GENERAL_FAILURE: they do not fit the elements of the input.
    """
    wanted = [int(value) for value in call.array("shape").reshape(-1)]
    elements = prod(call.shape("input"))
    known = prod(value for value in wanted if value != -1)
    call.require(wanted.count(-1) <= 1, f"shape {wanted} has more than one -1")
    call.require(all(value == -1 or value > 0 for value in wanted), f"shape {wanted} has a value that is not > 0 or -1")
    shape = tuple(elements // known if value == -1 else value for value in wanted)
    call.require(prod(shape) == elements, f"input has {elements} elements, shape {wanted} has not")
    return shape


@shape_rule(OperationType.RESHAPE, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def reshape(call: Call) -> list[Shape]:
    """As the argument `shape` says."""
    same_quantization(call)
    return [reshaped(call)]


def squeezed(call: Call) -> Shape:
    """The input's shape less the dimensions in `axes`, or less all of length 1; [1] when none is left.

    Raises:
        HalError: GENERAL_FAILURE: a listed dimension does not exist or is longer than 1.
    """
    shape = call.shape("input")
    if call.has("axes"):
        removed = axes_of(call, len(shape))
    else:
        declared = len(call.operand("axes").dimensions)
        call.require(declared == 1, f"axes is declared with rank {declared}; it must be 1 even when omitted")
        removed = tuple(i for i, length in enumerate(shape) if length == 1)
    for axis in removed:
        call.require(shape[axis] == 1, f"dimension {axis} of input is {shape[axis]}; it must be 1 to be removed")
    return tuple(length for i, length in enumerate(shape) if i not in removed) or (1,)


@shape_rule(OperationType.SQUEEZE, empty=False)
def squeeze(call: Call) -> list[Shape]:
    """As the input, without dimensions of length 1."""
    same_quantization(call)
    limit_rank(call, "input")
    return [squeezed(call)]


@shape_rule(OperationType.EXPAND_DIMS, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def expand_dims(call: Call) -> list[Shape]:
    """As the input, with a 1 inserted so that it becomes dimension `axis` of the output."""
    same_quantization(call)
    shape = call.shape("input")
    axis = call.axis(len(shape) + 1)
    return [(*shape[:axis], 1, *shape[axis:])]


def permutation(call: Call) -> tuple[int, ...]:
    """For each dimension of a transposed tensor the one of the input; (1, 0) where `perm` is omitted.

    Raises:
        HalError: GENERAL_FAILURE: it is no permutation of the dimensions, or omitted where the rank is not 2.
    """
    rank = len(call.shape("input"))
    if not call.has("perm"):
        call.require(rank == 2, f"input has rank {rank}; without perm it must be 2")
        return (1, 0)
    perm = call.vector("perm", rank)
    call.require(sorted(perm) == list(range(rank)), f"perm {perm} is no permutation of 0..{rank - 1}")
    return tuple(perm)


@shape_rule(OperationType.TRANSPOSE)
def transpose(call: Call) -> list[Shape]:
    """The input's dimensions in another order."""
    same_quantization(call)
    shape = call.shape("input")
    limit_rank(call, "input")
    return [tuple(shape[i] for i in permutation(call))]


@shape_rule(OperationType.RANK, empty=False)
def rank(call: Call) -> list[Shape]:
    """A scalar."""
    return [()]
