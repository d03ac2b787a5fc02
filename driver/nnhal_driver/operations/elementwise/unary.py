"""Shapes of functions of one tensor: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import shape_rule


@shape_rule(OperationType.FLOOR, empty=False, rank_4=True)
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
def unary(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    return [call.shape("input")]
