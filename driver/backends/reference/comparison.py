"""Kernels of comparisons: EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL."""

from collections.abc import Callable

import numpy as np

from driver.backends.reference.kernel import is_quantized, kernel
from driver.operations.call import Call
from driver.operations.quantization import dequantized
from nnhal.types import AnyArray, OperandType, OperationType

_COMPARE: dict[int, Callable[[AnyArray, AnyArray], AnyArray]] = {
    OperationType.EQUAL: np.equal,
    OperationType.NOT_EQUAL: np.not_equal,
    OperationType.LESS: np.less,
    OperationType.LESS_EQUAL: np.less_equal,
    OperationType.GREATER: np.greater,
    OperationType.GREATER_EQUAL: np.greater_equal,
}


@kernel(*_COMPARE)
def comparison(call: Call) -> AnyArray:
    """Whether x and y stand in the relation; with a NaN only NOT_EQUAL holds."""
    return _COMPARE[call.view.type](_comparable(call, "x"), _comparable(call, "y"))


def _comparable(call: Call, name: str) -> AnyArray:
    """Quantised values as float32, booleans as the bytes they are."""
    if is_quantized(call, name):
        return dequantized(call.array(name), call.operand(name))
    array = call.array(name)
    return array.view(np.uint8) if call.operand(name).type == OperandType.TENSOR_BOOL8 else array
