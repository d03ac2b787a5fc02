"""Kernels of comparisons: EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL."""

from collections.abc import Callable

import numpy as np

from nnhal.types import AnyArray, OperandType, OperationType
from nnhal_driver.backends.reference.kernel import is_quantized, kernel
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.elementwise.quantization import dequantize_array

_COMPARE: dict[int, Callable[[AnyArray, AnyArray], AnyArray]] = {
    OperationType.EQUAL: np.equal,
    OperationType.NOT_EQUAL: np.not_equal,
    OperationType.LESS: np.less,
    OperationType.LESS_EQUAL: np.less_equal,
    OperationType.GREATER: np.greater,
    OperationType.GREATER_EQUAL: np.greater_equal,
}


@kernel(*_COMPARE)
def comparison(call: OperationCall) -> AnyArray:
    """Compare x with y. With a NaN, only NOT_EQUAL is true."""
    return _COMPARE[call.view.type](_comparable_values(call, "x"), _comparable_values(call, "y"))


def _comparable_values(call: OperationCall, name: str) -> AnyArray:
    """Return quantized values as float32, booleans as bytes, and other values unchanged."""
    if is_quantized(call, name):
        return dequantize_array(call.array(name), call.operand(name))
    array = call.array(name)
    return array.view(np.uint8) if call.operand(name).type == OperandType.TENSOR_BOOL8 else array
