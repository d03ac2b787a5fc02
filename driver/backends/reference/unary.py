"""Kernels of functions of one tensor: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN, SQRT."""

from collections.abc import Callable

import numpy as np

from driver.backends.reference.kernel import Floats, floats, is_quantized, kernel, narrowed, tabulated
from driver.backends.reference.quantization import quantized
from driver.operations.call import Call
from driver.operations.quantization import dequantized
from nnhal.types import AnyArray, OperationType

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
def exact(call: Call) -> AnyArray:
    """Functions that need no rounding, in the tensor's own type."""
    return _EXACT[call.view.type](call.array("input"))


@kernel(*_ROUNDED)
def rounded(call: Call) -> AnyArray:
    """Functions of float32."""
    return narrowed(call, _ROUNDED[call.view.type](floats(call, "input")))


@kernel(OperationType.RSQRT)
def rsqrt(call: Call) -> AnyArray:
    """1 / sqrt(x), rounded twice. Quantised: what has no real result gives the largest stored value."""
    if is_quantized(call, "input"):
        input_, output = call.operand("input"), call.operand("output")
        return tabulated(call, "input", lambda q: quantized(_rsqrt(dequantized(q, input_)), output))
    return narrowed(call, _rsqrt(floats(call, "input")))


@np.errstate(invalid="ignore", divide="ignore")
def _rsqrt(x: Floats) -> Floats:
    out: Floats = np.reciprocal(np.sqrt(x))
    return out
