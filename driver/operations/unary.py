"""Shapes of functions of one tensor: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from driver.operations.call import Call, Shape
from driver.operations.shape import limit_rank, shape_rule
from nnhal.types import OperationType


@shape_rule(
    OperationType.ABS,
    OperationType.EXP,
    OperationType.LOG,
    OperationType.NEG,
    OperationType.RSQRT,
    OperationType.SIN,
    OperationType.SQRT,
    empty=False,
)
def unary(call: Call) -> list[Shape]:
    """As the input."""
    return [call.shape("input")]


@shape_rule(OperationType.FLOOR, empty=False)
def floor(call: Call) -> list[Shape]:
    """As the input."""
    limit_rank(call, "input")
    return [call.shape("input")]
