"""Shapes of RESHAPE."""

from math import prod

from driver.operations.call import Call, Shape
from driver.operations.shape import same_quantization, shape_rule
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
