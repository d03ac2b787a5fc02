"""Kernels of activations: RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX, LOG_SOFTMAX."""

from collections.abc import Callable

import numpy as np

from driver.backends.reference.fixed_point import RANGES, Integers, activation_bounds, encode, rdiv, rescale
from driver.backends.reference.gemmlowp import expneg, logistic, product, reciprocal, saturated, tanh
from driver.backends.reference.kernel import FLOAT_BOUNDS, Floats, floats, is_quantized, kernel, narrowed, tabulated
from driver.operations.activation import swish_multiplier
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, FusedActivationFunc, Operand, OperandType, OperationType

_RELUS = {
    OperationType.RELU: FusedActivationFunc.RELU,
    OperationType.RELU1: FusedActivationFunc.RELU1,
    OperationType.RELU6: FusedActivationFunc.RELU6,
}
_SIGMOID_BITS = 4
"""Integer bits of what quantised LOGISTIC and TANH are taken of."""
_SOFTMAX_BITS = 5
"""Integer bits of a scaled difference in quantised SOFTMAX: d_k in F5."""
_SUM_BITS = 12
"""Integer bits of the sum of exponentials."""


@kernel(*_RELUS)
def relu(call: Call) -> AnyArray:
    """The input between two bounds; NaN gives the lower one."""
    function = _RELUS[OperationType(call.view.type)]
    if is_quantized(call, "input"):
        return np.clip(call.array("input"), *activation_bounds(call.operand("input"), function))
    x = floats(call, "input")
    low, high = FLOAT_BOUNDS[function]
    return narrowed(call, np.minimum(np.where(low < x, x, low), high))


@kernel(OperationType.LOGISTIC)
def logistic_(call: Call) -> AnyArray:
    """1 / (1 + exp(-x)); quantised with scale 1/256 from the smallest stored value on."""
    if is_quantized(call, "input"):
        return _quantized_sigmoid(call, lambda a: rdiv(logistic(a, _SIGMOID_BITS), 23))
    return narrowed(call, np.float32(1) / (np.float32(1) + np.exp(-floats(call, "input"))))


@kernel(OperationType.TANH)
def tanh_(call: Call) -> AnyArray:
    """tanh(x); quantised with scale 1/128 around the middle of the stored values."""
    if is_quantized(call, "input"):
        return _quantized_sigmoid(call, lambda a: rdiv(tanh(a, _SIGMOID_BITS), 24) + 128)
    return narrowed(call, np.tanh(floats(call, "input")))


def _quantized_sigmoid(call: Call, function: Callable[[Integers], Integers]) -> AnyArray:
    """Steps from the smallest stored value by a function of F4; far from the zero point they are 0 or 255."""
    operand, output = call.operand("input"), call.operand("output")

    def steps(stored: AnyArray) -> AnyArray:
        mantissa, exponent = encode(operand.scale * 2**27)
        radius = 15 * 2**27 >> exponent
        centred = stored.astype(np.int64) - operand.zero_point
        near = np.where(np.abs(centred) < radius, centred, 0)
        found = np.minimum(function(((near << exponent) * mantissa + (1 << 30)) >> 31), 255)
        found = np.where(centred <= -radius, 0, np.where(centred >= radius, 255, found))
        return (found + RANGES[OperandType(output.type)][0]).astype(DTYPES[output.type])

    return tabulated(call, "input", steps)


@kernel(OperationType.ELU)
def elu(call: Call) -> AnyArray:
    """max(0, x) + min(0, alpha * (exp(x) - 1)), for any alpha; NaN gives 0."""
    x, zero = floats(call, "input"), np.float32(0)
    negative = np.float32(call.number("alpha")) * (np.exp(x) - np.float32(1))
    return narrowed(call, np.where(x > 0, x, zero) + np.where(negative < 0, negative, zero))


@kernel(OperationType.HARD_SWISH)
def hard_swish(call: Call) -> AnyArray:
    """x * min(6, max(0, x + 3)) / 6."""
    if is_quantized(call, "input"):
        return tabulated(call, "input", lambda stored: _quantized_hard_swish(call, stored))
    x = floats(call, "input")
    return narrowed(call, x * np.clip(x + np.float32(3), np.float32(0), np.float32(6)) / np.float32(6))


def _quantized_hard_swish(call: Call, stored: AnyArray) -> AnyArray:
    """In 16-bit fixed point: x on the output's scale, times its share between 0 and 1."""
    operand, output = call.operand("input"), call.operand("output")
    fine = (stored.astype(np.int64) - operand.zero_point) * 128
    mantissa, exponent = encode(swish_multiplier(call))
    scaled = product(fine, _narrow(mantissa), 16)
    share_mantissa, share_exponent = encode(float(np.float32(operand.scale / 128) / np.float32(3 / 32768)))
    share = fine
    if share_exponent > 0:
        share = saturated(share << min(share_exponent - 1, 16), 16)
    share = product(share, _narrow(share_mantissa), 16)
    if share_exponent > 0:
        share = saturated(share << 1, 16)
    share = (rdiv(share, max(-share_exponent, 0)) + 2**15) >> 1
    value = np.sign(scaled) * ((share * np.abs(scaled)) >> 15)
    return _stored(rdiv(value, -exponent) + output.zero_point, output)


def _narrow(mantissa: int) -> int:
    """A 32-bit multiplier in 16 bits."""
    return 2**15 - 1 if mantissa >= 2**31 - 1 - 2**15 else (mantissa + 2**15) >> 16


@kernel(OperationType.PRELU)
def prelu(call: Call) -> AnyArray:
    """x, or alpha * x where x is negative."""
    if is_quantized(call, "input"):
        return _quantized_prelu(call)
    x = floats(call, "input")
    return narrowed(call, np.where(x >= 0, x, floats(call, "alpha") * x))


def _quantized_prelu(call: Call) -> AnyArray:
    input_, alpha, output = (call.operand(name) for name in ("input", "alpha", "output"))
    x = call.array("input").astype(np.int64) - input_.zero_point
    slope = call.array("alpha").astype(np.int64) - alpha.zero_point
    positive = rescale(x, *_capped(float(np.float32(input_.scale) / np.float32(output.scale))))
    negative = rescale(x * slope, *_capped(float(np.float32(input_.scale * alpha.scale)) / output.scale))
    return _stored(np.where(x >= 0, positive, negative) + output.zero_point, output)


def _capped(multiplier: float) -> tuple[int, int]:
    """A multiplier encoded; from 2^14 on it brings any value but 0 out of range, and more would not fit int64."""
    return encode(min(multiplier, 2.0**14))


def _stored(value: Integers, output: Operand) -> AnyArray:
    """Values within what the output's type holds."""
    return np.clip(value, *RANGES[OperandType(output.type)]).astype(DTYPES[output.type])


@kernel(OperationType.SOFTMAX)
def softmax(call: Call) -> AnyArray:
    """exp((x - max) * beta) by their sum, along one axis."""
    axis = call.axis(len(call.shape("input")))
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
    return _stored(shares + RANGES[OperandType(output.type)][0], output)


def _exponentials(call: Call) -> tuple[Integers, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """exp(-beta * scale * n) in F0 for n = 0..255, and which of them take part at all."""
    multiplier = min(call.number("beta") * call.operand("input").scale * 2**26, 2.0**31 - 1)
    mantissa, exponent = encode(multiplier)
    smallest = -(31 * 2**26 // 2**exponent)
    n = -np.arange(256, dtype=np.int64)
    taking_part = n >= smallest
    scaled = (((np.where(taking_part, n, 0) << exponent) * mantissa) + (1 << 30)) >> 31
    return expneg(scaled, _SOFTMAX_BITS), taking_part


@kernel(OperationType.LOG_SOFTMAX)
def log_softmax(call: Call) -> AnyArray:
    """(x - max) * beta - log(sum(exp((x - max) * beta))), along one axis, each step rounded to the tensor's type."""
    x = call.array("logits")
    axis = call.axis(x.ndim)
    scaled = np.moveaxis((x - x.max(axis=axis, keepdims=True)) * call.array("beta"), axis, 0)
    total = np.zeros(scaled.shape[1:], x.dtype)
    for power in np.exp(scaled.astype(np.float64)):
        total = (total + power).astype(x.dtype)
    return np.moveaxis(scaled - np.log(total.astype(np.float64)).astype(x.dtype), 0, axis)
