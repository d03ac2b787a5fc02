"""Kernels of activations: SOFTMAX."""

import numpy as np

from driver.backends.reference.fixed_point import Integers, encode, rdiv
from driver.backends.reference.gemmlowp import expneg, product, reciprocal
from driver.backends.reference.kernel import Floats, floats, is_quantized, kernel, narrowed
from driver.operations.activation import axis_of
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType

_INPUT_BITS = 5
"""Integer bits of a scaled difference: d_k in F5."""
_SUM_BITS = 12
"""Integer bits of the sum of exponentials."""


@kernel(OperationType.SOFTMAX)
def softmax(call: Call) -> AnyArray:
    """exp((x - max) * beta) by their sum, along one axis."""
    axis = axis_of(call, len(call.shape("input")))
    if is_quantized(call, "input"):
        return _quantized_softmax(call, axis)
    x = floats(call, "input")
    if x.size == 0:
        return narrowed(call, x)
    powers: Floats = np.exp((x - x.max(axis=axis, keepdims=True)) * np.float32(call.number("beta")))
    return narrowed(call, powers / powers.sum(axis=axis, keepdims=True))


def _quantized_softmax(call: Call, axis: int) -> AnyArray:
    """All in fixed point. A difference to the maximum takes 256 values, so exponentials come from a table."""
    stored = call.array("input").astype(np.int64)
    output = call.operand("output")
    if stored.size == 0:
        return stored.astype(DTYPES[output.type])
    table, taking_part = call.once("exponentials", lambda: _exponentials(call), "beta")
    difference = stored.max(axis=axis, keepdims=True) - stored
    powers = np.where(taking_part[difference], table[difference], 0)
    total = rdiv(powers, _SUM_BITS).sum(axis=axis, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    inverse = reciprocal((total << zeros) - 2**31)
    shares = rdiv(product(inverse, powers), _SUM_BITS - zeros + 31 - 8)
    low, high = (0, 255) if output.type == OperandType.TENSOR_QUANT8_ASYMM else (-128, 127)
    return np.clip(shares + low, low, high).astype(DTYPES[output.type])


def _exponentials(call: Call) -> tuple[Integers, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """exp(-beta * scale * n) in F0 for n = 0..255, and which of them take part at all."""
    multiplier = min(call.number("beta") * call.operand("input").scale * 2**26, 2.0**31 - 1)
    mantissa, exponent = encode(multiplier)
    smallest = -(31 * 2**26 // 2**exponent)
    n = -np.arange(256, dtype=np.int64)
    taking_part = n >= smallest
    scaled = (((np.where(taking_part, n, 0) << exponent) * mantissa) + (1 << 30)) >> 31
    return expneg(scaled, _INPUT_BITS), taking_part
