"""Shapes of QUANTIZE, DEQUANTIZE and CAST."""

from driver.operations.call import Call, Shape
from driver.operations.shape import limit_rank, shape_rule
from nnhal.types import ErrorStatus, OperationType


@shape_rule(OperationType.QUANTIZE)
def quantize(call: Call) -> list[Shape]:
    """As the input."""
    return [call.shape("input")]


@shape_rule(OperationType.DEQUANTIZE)
def dequantize(call: Call) -> list[Shape]:
    """As the input."""
    limit_rank(call, "input")
    return [call.shape("input")]


@shape_rule(OperationType.CAST, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def cast(call: Call) -> list[Shape]:
    """As the input."""
    return [call.shape("input")]
