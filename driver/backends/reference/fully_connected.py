"""Kernels of FULLY_CONNECTED."""

import numpy as np

from driver.backends.reference.convolution import exact_dtype, requantized
from driver.backends.reference.kernel import activated, floats, is_quantized, kernel
from driver.operations.call import Call
from nnhal.types import AnyArray, OperationType


@kernel(OperationType.FULLY_CONNECTED)
def fully_connected(call: Call) -> AnyArray:
    """Input as [batch_size, input_size] times the weights, transposed."""
    size = call.shape("weights")[1]
    rows = call.array("input").reshape(-1, size)
    if not is_quantized(call, "input"):
        sums = rows.astype(np.float32, copy=False) @ floats(call, "weights").T
        return activated(call, sums + floats(call, "bias"))
    matrix = call.once("matrix", lambda: _centred(call), "weights")
    centred = rows.astype(matrix.dtype) - matrix.dtype.type(call.operand("input").zero_point)
    return requantized(call, centred @ matrix, "weights")


def _centred(call: Call) -> AnyArray:
    weights = call.array("weights").astype(np.int32) - call.operand("weights").zero_point
    return np.ascontiguousarray(weights.T).astype(exact_dtype(weights, (1,)))
