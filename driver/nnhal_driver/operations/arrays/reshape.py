"""Shapes of RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE and RANK."""

from math import prod

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.arrays.reduction import reduction_axes
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import shape_rule
from nnhal_driver.validation.rank import check_rank


def target_shape(call: OperationCall) -> Shape:
    """Return the argument `shape`, with -1 replaced by the remaining length.

    Raises:
        HalError: GENERAL_FAILURE: the shape is invalid, or does not have as many elements as the input.
    """
    check_rank(prod(call.shape("shape")), f"{call.view.name}: output 0")
    requested = call.integers("shape")
    elements = prod(call.shape("input"))
    known = prod(value for value in requested if value != -1)
    call.require(requested.count(-1) <= 1, f"shape {requested} has more than one -1")
    call.require(
        all(value == -1 or value > 0 for value in requested), f"shape {requested} has a value that is not > 0 or -1"
    )
    shape = tuple(elements // known if value == -1 else value for value in requested)
    call.require(prod(shape) == elements, f"input has {elements} elements; shape {requested} has {prod(shape)}")
    return shape


@shape_rule(OperationType.RESHAPE, empty=False, failure=ErrorStatus.INVALID_ARGUMENT, requantizes=False)
def reshape(call: OperationCall) -> list[Shape]:
    """Return the shape that the argument `shape` gives."""
    return [target_shape(call)]


def squeezed_shape(call: OperationCall) -> Shape:
    """Return the input's shape without the dimensions in `axes`, or without all dimensions of length 1.

    It is [1] if no dimension remains.

    Raises:
        HalError: GENERAL_FAILURE: a dimension in `axes` does not exist or is longer than 1.
    """
    shape = call.shape("input")
    if call.has("axes"):
        removed = reduction_axes(call, len(shape))
    else:
        declared = len(call.operand("axes").dimensions)
        call.require(declared == 1, f"axes is declared with rank {declared}; it must be 1 even when omitted")
        removed = tuple(i for i, length in enumerate(shape) if length == 1)
    for axis in removed:
        call.require(shape[axis] == 1, f"dimension {axis} of input is {shape[axis]}; it must be 1 to be removed")
    return tuple(length for i, length in enumerate(shape) if i not in removed) or (1,)


@shape_rule(OperationType.SQUEEZE, empty=False, rank_4=True, requantizes=False)
def squeeze(call: OperationCall) -> list[Shape]:
    """Return the shape of the input without dimensions of length 1."""
    return [squeezed_shape(call)]


@shape_rule(OperationType.EXPAND_DIMS, empty=False, failure=ErrorStatus.INVALID_ARGUMENT, requantizes=False)
def expand_dims(call: OperationCall) -> list[Shape]:
    """Return the shape of the input, with a 1 inserted as dimension `axis` of the output."""
    shape = call.shape("input")
    axis = call.axis(len(shape) + 1)
    return [(*shape[:axis], 1, *shape[axis:])]


def permutation(call: OperationCall) -> tuple[int, ...]:
    """Return for each dimension of the output the dimension of the input. It is (1, 0) if `perm` is omitted.

    Raises:
        HalError: GENERAL_FAILURE: `perm` is not a permutation, or it is omitted and the rank is not 2.
    """
    rank = len(call.shape("input"))
    if not call.has("perm"):
        call.require(rank == 2, f"input has rank {rank}; without perm it must be 2")
        return (1, 0)
    perm = call.vector("perm", rank)
    call.require(sorted(perm) == list(range(rank)), f"perm {perm} is not a permutation of 0..{rank - 1}")
    return tuple(perm)


@shape_rule(OperationType.TRANSPOSE, rank_4=True, requantizes=False)
def transpose(call: OperationCall) -> list[Shape]:
    """Return the permuted shape of the input."""
    shape = call.shape("input")
    return [tuple(shape[i] for i in permutation(call))]


@shape_rule(OperationType.RANK, empty=False)
def rank(call: OperationCall) -> list[Shape]:
    """Return the shape of a scalar."""
    return [()]
