"""Kernels of LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT and SELECT."""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.elementwise.quantization import requantize_argument
from nnhal_driver.backends.reference.kernel import is_quantized, kernel
from nnhal_driver.operations.call import OperationCall

kernel(OperationType.LOGICAL_AND)(lambda call: np.logical_and(call.array("x"), call.array("y")))
kernel(OperationType.LOGICAL_OR)(lambda call: np.logical_or(call.array("x"), call.array("y")))
kernel(OperationType.LOGICAL_NOT)(lambda call: np.logical_not(call.array("input")))


@kernel(OperationType.SELECT)
def select(call: OperationCall) -> AnyArray:
    """Return if_true where the condition is true and if_false elsewhere, each on the output's scale."""
    value = requantize_argument if is_quantized(call, "if_true") else OperationCall.array
    return np.where(call.array("condition"), value(call, "if_true"), value(call, "if_false"))
