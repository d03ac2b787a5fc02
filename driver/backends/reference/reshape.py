"""Kernels of RESHAPE."""

from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from driver.operations.reshape import reshaped
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.RESHAPE)
def reshape(call: Call) -> AnyArray:
    """The same elements in the same order."""
    return call.array("input").reshape(reshaped(call))
