"""Shapes of QUANTIZE, DEQUANTIZE and CAST, and what stored values stand for."""

import numpy as np
from numpy.typing import NDArray

from driver.operations.call import Call, Shape
from driver.operations.shape import limit_rank, shape_rule
from nnhal.types import AnyArray, ErrorStatus, Operand, OperationType


@np.errstate(over="ignore")
def dequantized(stored: AnyArray, operand: Operand) -> NDArray[np.float32]:
    """(stored - zero point) * scale, the difference exact, the product in float32."""
    return (stored.astype(np.int32) - operand.zero_point).astype(np.float32) * np.float32(operand.scale)


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
