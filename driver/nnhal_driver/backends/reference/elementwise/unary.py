"""Kernels of functions of one tensor: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from collections.abc import Callable

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.elementwise.quantization import quantize_array
from nnhal_driver.backends.reference.kernel import Floats, as_float32, is_quantized, kernel, map_8bit, to_output_type
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.elementwise.quantization import dequantize_array

_EXACT: dict[int, Callable[[AnyArray], AnyArray]] = {
    OperationType.ABS: np.abs,
    OperationType.FLOOR: np.floor,
    OperationType.NEG: np.negative,
}
_ROUNDED: dict[int, Callable[[Floats], Floats]] = {
    OperationType.EXP: np.exp,
    OperationType.LOG: np.log,
    OperationType.SIN: np.sin,
    OperationType.SQRT: np.sqrt,
}


@kernel(*_EXACT)
def exact(call: OperationCall) -> AnyArray:
    """Apply a function that needs no rounding, in the tensor's own type."""
    return _EXACT[call.view.type](call.array("input"))


@kernel(*_ROUNDED)
def rounded(call: OperationCall) -> AnyArray:
    """Apply a function in float32."""
    return to_output_type(call, _ROUNDED[call.view.type](as_float32(call, "input")))


@kernel(OperationType.RSQRT)
def rsqrt(call: OperationCall) -> AnyArray:
    """Return 1 / sqrt(x), rounded twice. Quantized values without a real result give the largest stored value."""
    if is_quantized(call, "input"):
        input_, output = call.operand("input"), call.operand("output")
        return map_8bit(call, "input", lambda q: quantize_array(_rsqrt(dequantize_array(q, input_)), output))
    return to_output_type(call, _rsqrt(as_float32(call, "input")))


@np.errstate(invalid="ignore", divide="ignore")
def _rsqrt(x: Floats) -> Floats:
    result: Floats = np.reciprocal(np.sqrt(x))
    return result
