"""Kernels of LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT and SELECT."""

import numpy as np

from driver.backends.reference.kernel import is_quantized, kernel
from driver.backends.reference.quantization import requantized
from driver.operations.call import Call
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.LOGICAL_AND)
def logical_and(call: Call) -> AnyArray:
    """x and y."""
    return np.logical_and(call.array("x"), call.array("y"))


@kernel(OperationType.LOGICAL_OR)
def logical_or(call: Call) -> AnyArray:
    """x or y."""
    return np.logical_or(call.array("x"), call.array("y"))


@kernel(OperationType.LOGICAL_NOT)
def logical_not(call: Call) -> AnyArray:
    """Not the input."""
    return np.logical_not(call.array("input"))


@kernel(OperationType.SELECT)
def select(call: Call) -> AnyArray:
    """if_true where the condition holds, elsewhere if_false, each on the output's scale."""
    value = requantized if is_quantized(call, "if_true") else Call.array
    return np.where(call.array("condition"), value(call, "if_true"), value(call, "if_false"))
