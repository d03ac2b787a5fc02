"""Kernel of FILL."""

import numpy as np

from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.FILL)
def fill(call: Call) -> AnyArray:
    """The scalar at every place."""
    return np.broadcast_to(call.array("value"), call.vector("dims"))
