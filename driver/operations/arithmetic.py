"""Shapes of arithmetic with broadcasting: ADD."""

from itertools import zip_longest

from driver.operations.call import Call, Shape
from driver.operations.shape import shape_rule
from nnhal.types import FusedActivationFunc, OperandType, OperationType


def broadcast(call: Call, a: str, b: str) -> Shape:
    """The common shape of two arguments, aligned at the last dimension; 0 goes with 0 and 1.

    Raises:
        HalError: GENERAL_FAILURE: they do not go together.
    """
    left, right = call.shape(a), call.shape(b)
    out = []
    for x, y in zip_longest(reversed(left), reversed(right), fillvalue=1):
        call.require(x == y or 1 in (x, y), f"{a} {list(left)} and {b} {list(right)} cannot be broadcast")
        out.append(y if x == 1 else x)
    return tuple(reversed(out))


@shape_rule(OperationType.ADD)
def add(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    activation = call.activation()
    if call.operand("output").type == OperandType.TENSOR_INT32:
        call.require(activation == FusedActivationFunc.NONE, "TENSOR_INT32 takes no fused activation")
    return [broadcast(call, "input0", "input1")]
