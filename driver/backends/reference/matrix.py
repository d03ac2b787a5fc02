"""Kernels of FULLY_CONNECTED and BATCH_MATMUL."""

import numpy as np

from driver.backends.reference.fixed_point import RANGES, encode, rescale
from driver.backends.reference.kernel import activated, floats, is_quantized, kernel, narrowed
from driver.backends.reference.requantization import centred, exact_dtype, folded_bias, requantized
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType


@kernel(OperationType.FULLY_CONNECTED)
def fully_connected(call: Call) -> AnyArray:
    """Input as [batch_size, input_size] times the weights, transposed."""
    size = call.shape("weights")[1]
    rows = call.array("input").reshape(-1, size)
    if not is_quantized(call, "input"):
        sums = rows.astype(np.float32, copy=False) @ floats(call, "weights").T
        return activated(call, sums + floats(call, "bias"))
    matrix = call.once("matrix", lambda: np.ascontiguousarray(centred(call, "weights", (1,)).T), "weights")
    return requantized(call, rows.astype(matrix.dtype) @ matrix, folded_bias(call, "weights", (1,)), "weights")


@kernel(OperationType.BATCH_MATMUL)
def batch_matmul(call: Call) -> AnyArray:
    """x times y, matrix by matrix; int32 wraps around."""
    if call.operand("x").type == OperandType.TENSOR_INT32:
        return _turned(call, "x", call.array("x")) @ _turned(call, "y", call.array("y"))
    if call.operand("x").type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED:
        return _quantized_matmul(call)
    return narrowed(call, _turned(call, "x", floats(call, "x")) @ _turned(call, "y", floats(call, "y")))


def _quantized_matmul(call: Call) -> AnyArray:
    """Exact sums, scaled to the output."""
    first, second, output = (call.operand(name) for name in ("x", "y", "output"))
    x = _turned(call, "x", call.array("x").astype(np.int32) - first.zero_point)
    y = _turned(call, "y", call.array("y").astype(np.int32) - second.zero_point)
    dtype = exact_dtype(y, (-2,))
    sums = (x.astype(dtype) @ y.astype(dtype)).astype(np.int64)
    multiplier = float(np.float32(first.scale) * np.float32(second.scale)) / output.scale
    stored = rescale(sums, *encode(multiplier)) + output.zero_point
    return np.clip(stored, *RANGES[OperandType(output.type)]).astype(DTYPES[output.type])


def _turned(call: Call, name: str, matrices: AnyArray) -> AnyArray:
    return matrices.swapaxes(-1, -2) if call.flag(f"adj_{name}") else matrices
