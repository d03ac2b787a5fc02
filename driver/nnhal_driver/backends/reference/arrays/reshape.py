"""Kernels of RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE and RANK."""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.operations.arrays.reshape import permutation, squeezed_shape, target_shape
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.RESHAPE)
def reshape(call: OperationCall) -> AnyArray:
    """Return the input with the new shape."""
    return call.array("input").reshape(target_shape(call))


@kernel(OperationType.SQUEEZE)
def squeeze(call: OperationCall) -> AnyArray:
    """Remove dimensions of length 1."""
    return call.array("input").reshape(squeezed_shape(call))


@kernel(OperationType.EXPAND_DIMS)
def expand_dims(call: OperationCall) -> AnyArray:
    """Insert a dimension of length 1."""
    return np.expand_dims(call.array("input"), call.axis(len(call.shape("input")) + 1))


@kernel(OperationType.TRANSPOSE)
def transpose(call: OperationCall) -> AnyArray:
    """Permute the dimensions of the input."""
    return call.array("input").transpose(permutation(call))


@kernel(OperationType.RANK)
def rank(call: OperationCall) -> AnyArray:
    """Return the number of dimensions, as a scalar."""
    return np.array(len(call.shape("input")), np.int32)
