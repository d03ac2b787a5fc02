"""Kernels of FULLY_CONNECTED and BATCH_MATMUL."""

import numpy as np

from nnhal.types import AnyArray, OperandType, OperationType
from nnhal_driver.backends.reference.kernel import (
    apply_activation,
    as_float32,
    is_quantized,
    kernel,
    matrix_product,
    to_output_type,
)
from nnhal_driver.backends.reference.numerics.fixed_point import encode, rescale, to_stored
from nnhal_driver.backends.reference.numerics.requantization import (
    center_weights,
    exact_dtype,
    fold_zero_point,
    requantize_sums,
)
from nnhal_driver.operations.call import OperationCall


@kernel(OperationType.FULLY_CONNECTED)
def fully_connected(call: OperationCall) -> AnyArray:
    """Multiply the input, as [batch_size, input_size], by the transposed weights."""
    size = call.shape("weights")[1]
    rows = call.array("input").reshape(-1, size)
    if not is_quantized(call, "input"):
        sums = matrix_product(call, rows.astype(np.float32, copy=False), as_float32(call, "weights").T)
        return apply_activation(call, sums + as_float32(call, "bias"))
    matrix = call.memoize_constant(
        "matrix", lambda: np.ascontiguousarray(center_weights(call, "weights", (1,)).T), "weights"
    )
    sums = matrix_product(call, rows.astype(matrix.dtype), matrix)
    return requantize_sums(call, sums, fold_zero_point(call, "weights", (1,)), "weights")


@kernel(OperationType.BATCH_MATMUL)
def batch_matmul(call: OperationCall) -> AnyArray:
    """Multiply x by y, matrix by matrix. int32 wraps around."""
    if call.operand("x").type == OperandType.TENSOR_INT32:
        x, y = (_transpose_if_set(call, name, call.array(name)) for name in "xy")
        return matrix_product(call, x, y)
    if call.operand("x").type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED:
        return _quantized_matmul(call)
    x, y = (_transpose_if_set(call, name, as_float32(call, name)) for name in "xy")
    return to_output_type(call, matrix_product(call, x, y))


def _quantized_matmul(call: OperationCall) -> AnyArray:
    """Compute exact sums, then scale them to the output."""
    first, second, output = (call.operand(name) for name in ("x", "y", "output"))
    x = _transpose_if_set(call, "x", call.array("x").astype(np.int32) - first.zero_point)
    y = _transpose_if_set(call, "y", call.array("y").astype(np.int32) - second.zero_point)
    dtype = exact_dtype(y, (-2,))
    sums = matrix_product(call, x.astype(dtype), y.astype(dtype)).astype(np.int64)
    multiplier = float(np.float32(first.scale) * np.float32(second.scale)) / output.scale
    return to_stored(rescale(sums, *encode(multiplier)) + output.zero_point, output)


def _transpose_if_set(call: OperationCall, name: str, matrices: AnyArray) -> AnyArray:
    return matrices.swapaxes(-1, -2) if call.flag(f"adj_{name}") else matrices
