"""Kernel of FILL."""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.FILL)
def fill(call: OperationCall) -> AnyArray:
    """Return a tensor of copies of the scalar."""
    return np.broadcast_to(call.array("value"), call.vector("dims"))
