"""Shapes of QUANTIZE, DEQUANTIZE and CAST, and the real values of quantized arrays."""

import numpy as np
from numpy.typing import NDArray

from nnhal.types import AnyArray, ErrorStatus, Operand, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import shape_rule


@np.errstate(over="ignore")
def dequantize_array(stored: AnyArray, operand: Operand) -> NDArray[np.float32]:
    """Return (stored - zero point) * scale. The difference is exact, the product is rounded to float32."""
    return (stored.astype(np.int32) - operand.zero_point).astype(np.float32) * np.float32(operand.scale)


@shape_rule(OperationType.QUANTIZE)
@shape_rule(OperationType.CAST, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
@shape_rule(OperationType.DEQUANTIZE, rank_4=True)
def quantize(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    return [call.shape("input")]
