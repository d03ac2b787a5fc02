"""Kernels of RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE and RANK."""

import numpy as np

from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from driver.operations.reshape import permutation, reshaped, squeezed
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.RESHAPE)
def reshape(call: Call) -> AnyArray:
    """The same elements in the same order."""
    return call.array("input").reshape(reshaped(call))


@kernel(OperationType.SQUEEZE)
def squeeze(call: Call) -> AnyArray:
    """The same elements without dimensions of length 1."""
    return call.array("input").reshape(squeezed(call))


@kernel(OperationType.EXPAND_DIMS)
def expand_dims(call: Call) -> AnyArray:
    """The same elements with one more dimension."""
    return np.expand_dims(call.array("input"), call.axis(len(call.shape("input")) + 1))


@kernel(OperationType.TRANSPOSE)
def transpose(call: Call) -> AnyArray:
    """The elements with their dimensions in another order."""
    return call.array("input").transpose(permutation(call))


@kernel(OperationType.RANK)
def rank(call: Call) -> AnyArray:
    """The number of dimensions, as a scalar."""
    return np.array(len(call.shape("input")), np.int32)
