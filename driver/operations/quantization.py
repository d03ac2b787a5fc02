"""Shapes of QUANTIZE and DEQUANTIZE."""

from driver.operations.call import Call, Shape
from driver.operations.shape import shape_rule
from nnhal.types import OperationType


@shape_rule(OperationType.QUANTIZE)
def quantize(call: Call) -> list[Shape]:
    """As the input."""
    return [call.shape("input")]


@shape_rule(OperationType.DEQUANTIZE)
def dequantize(call: Call) -> list[Shape]:
    """As the input."""
    rank = len(call.shape("input"))
    call.require(rank <= 4, f"input has rank {rank}; it must be at most 4")
    return [call.shape("input")]
