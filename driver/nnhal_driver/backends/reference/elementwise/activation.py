"""Kernels of activations: RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX, LOG_SOFTMAX."""

from collections.abc import Callable

import numpy as np

from nnhal.types import DTYPES, AnyArray, FusedActivationFunc, OperationType
from nnhal_driver.backends.division import look_up
from nnhal_driver.backends.reference.kernel import (
    Floats,
    as_float32,
    is_quantized,
    kernel,
    map_8bit,
    to_output_type,
)
from nnhal_driver.backends.reference.numerics.fixed_point import (
    FLOAT_BOUNDS,
    RANGES,
    Integers,
    activation_bounds,
    encode,
    rdiv,
    rescale,
    to_stored,
)
from nnhal_driver.backends.reference.numerics.gemmlowp import expneg, logistic, product, reciprocal, saturate, tanh
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.elementwise.activation import swish_multiplier

_RELUS = {
    OperationType.RELU: FusedActivationFunc.RELU,
    OperationType.RELU1: FusedActivationFunc.RELU1,
    OperationType.RELU6: FusedActivationFunc.RELU6,
}
_SIGMOID_BITS = 4
"""Integer bits of the argument of quantized LOGISTIC and TANH."""
_SOFTMAX_BITS = 5
"""Integer bits of a scaled difference in quantized SOFTMAX: d_k in F5."""
_SUM_BITS = 12
"""Integer bits of the sum of exponentials."""


@kernel(*_RELUS)
def relu(call: OperationCall) -> AnyArray:
    """Clamp the input between two bounds. NaN gives the lower one."""
    function = _RELUS[OperationType(call.view.type)]
    if is_quantized(call, "input"):
        return np.clip(call.array("input"), *activation_bounds(call.operand("input"), function))
    x = as_float32(call, "input")
    low, high = FLOAT_BOUNDS[function]
    return to_output_type(call, np.minimum(np.where(low < x, x, low), high))


@kernel(OperationType.LOGISTIC)
def logistic_(call: OperationCall) -> AnyArray:
    """Return 1 / (1 + exp(-x)). Quantized outputs have scale 1/256, and 0 is the smallest stored value."""
    if is_quantized(call, "input"):
        return _quantized_sigmoid(call, lambda a: rdiv(logistic(a, _SIGMOID_BITS), 23))
    return to_output_type(call, np.float32(1) / (np.float32(1) + np.exp(-as_float32(call, "input"))))


@kernel(OperationType.TANH)
def tanh_(call: OperationCall) -> AnyArray:
    """Return the hyperbolic tangent. Quantized outputs have scale 1/128, and 0 is the middle stored value."""
    if is_quantized(call, "input"):
        return _quantized_sigmoid(call, lambda a: rdiv(tanh(a, _SIGMOID_BITS), 24) + 128)
    return to_output_type(call, np.tanh(as_float32(call, "input")))


def _quantized_sigmoid(call: OperationCall, function: Callable[[Integers], Integers]) -> AnyArray:
    """Apply a function of F4 that returns steps above the smallest stored value, 0..255."""
    operand, output = call.operand("input"), call.operand("output")

    def evaluate(stored: AnyArray) -> AnyArray:
        mantissa, exponent = encode(operand.scale * 2**27)
        radius = 15 * 2**27 >> exponent
        centered = stored.astype(np.int64) - operand.zero_point
        near = np.where(np.abs(centered) < radius, centered, 0)
        steps = np.minimum(function(((near << exponent) * mantissa + (1 << 30)) >> 31), 255)
        steps = np.where(centered <= -radius, 0, np.where(centered >= radius, 255, steps))
        return (steps + RANGES[output.type][0]).astype(DTYPES[output.type])

    return map_8bit(call, "input", evaluate)


@kernel(OperationType.ELU)
def elu(call: OperationCall) -> AnyArray:
    """Return max(0, x) + min(0, alpha * (exp(x) - 1)), for any alpha. NaN gives 0."""
    x, zero = as_float32(call, "input"), np.float32(0)
    negative = np.float32(call.number("alpha")) * (np.exp(x) - np.float32(1))
    return to_output_type(call, np.where(x > 0, x, zero) + np.where(negative < 0, negative, zero))


@kernel(OperationType.HARD_SWISH)
def hard_swish(call: OperationCall) -> AnyArray:
    """Return x * min(6, max(0, x + 3)) / 6."""
    if is_quantized(call, "input"):
        return map_8bit(call, "input", lambda stored: _quantized_hard_swish(call, stored))
    x = as_float32(call, "input")
    return to_output_type(call, x * np.clip(x + np.float32(3), np.float32(0), np.float32(6)) / np.float32(6))


def _quantized_hard_swish(call: OperationCall, stored: AnyArray) -> AnyArray:
    """Compute in 16-bit fixed point: x on the output's scale, times a share between 0 and 1."""
    operand, output = call.operand("input"), call.operand("output")
    fine = (stored.astype(np.int64) - operand.zero_point) * 128
    mantissa, exponent = encode(swish_multiplier(call))
    scaled = product(fine, _narrow(mantissa), 16)
    share_mantissa, share_exponent = encode(float(np.float32(operand.scale / 128) / np.float32(3 / 32768)))
    share = fine
    if share_exponent > 0:
        share = saturate(share << min(share_exponent - 1, 16), 16)
    share = product(share, _narrow(share_mantissa), 16)
    if share_exponent > 0:
        share = saturate(share << 1, 16)
    share = (rdiv(share, max(-share_exponent, 0)) + 2**15) >> 1
    value = np.sign(scaled) * ((share * np.abs(scaled)) >> 15)
    return to_stored(rdiv(value, -exponent) + output.zero_point, output)


def _narrow(mantissa: int) -> int:
    """Round a 32-bit multiplier to 16 bits."""
    return 2**15 - 1 if mantissa >= 2**31 - 1 - 2**15 else (mantissa + 2**15) >> 16


@kernel(OperationType.PRELU)
def prelu(call: OperationCall) -> AnyArray:
    """Return x, or alpha * x where x is negative."""
    if is_quantized(call, "input"):
        return _quantized_prelu(call)
    x = as_float32(call, "input")
    return to_output_type(call, np.where(x >= 0, x, as_float32(call, "alpha") * x))


def _quantized_prelu(call: OperationCall) -> AnyArray:
    input_, alpha, output = (call.operand(name) for name in ("input", "alpha", "output"))
    x = call.array("input").astype(np.int64) - input_.zero_point
    slope = call.array("alpha").astype(np.int64) - alpha.zero_point
    positive = rescale(x, *_encode_capped(float(np.float32(input_.scale) / np.float32(output.scale))))
    negative = rescale(x * slope, *_encode_capped(float(np.float32(input_.scale * alpha.scale)) / output.scale))
    return to_stored(np.where(x >= 0, positive, negative) + output.zero_point, output)


def _encode_capped(multiplier: float) -> tuple[int, int]:
    """Encode a multiplier of at most 2^14. Larger ones saturate every value except 0, and would overflow int64."""
    return encode(min(multiplier, 2.0**14))


@kernel(OperationType.SOFTMAX)
def softmax(call: OperationCall) -> AnyArray:
    """Return exp((x - max) * beta), divided by their sum along one axis."""
    axis = call.axis(len(call.shape("input")))
    if is_quantized(call, "input"):
        return _quantized_softmax(call, axis)
    x = as_float32(call, "input")
    if x.size == 0:
        return to_output_type(call, x)
    powers: Floats = np.exp((x - x.max(axis=axis, keepdims=True)) * np.float32(call.number("beta")))
    return to_output_type(call, powers / powers.sum(axis=axis, keepdims=True))


def _quantized_softmax(call: OperationCall, axis: int) -> AnyArray:
    """Compute in fixed point. The 256 possible differences to the maximum allow a table."""
    stored = call.array("input").astype(np.int64)
    output = call.operand("output")
    if stored.size == 0:
        return stored.astype(DTYPES[output.type])
    table, included = call.memoize_constant("exponentials", lambda: _exponentials(call), "beta")
    difference = stored.max(axis=axis, keepdims=True) - stored
    powers = np.where(look_up(included, difference), look_up(table, difference), 0)
    total = rdiv(powers, _SUM_BITS).sum(axis=axis, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    inverse = reciprocal((total << zeros) - 2**31)
    shares = rdiv(product(inverse, powers), _SUM_BITS - zeros + 31 - 8)
    return to_stored(shares + RANGES[output.type][0], output)


def _exponentials(call: OperationCall) -> tuple[Integers, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return exp(-beta * scale * n) in F0 for n = 0..255, and a mask of those large enough to be added."""
    multiplier = min(call.number("beta") * call.operand("input").scale * 2**26, 2.0**31 - 1)
    mantissa, exponent = encode(multiplier)
    smallest = -(31 * 2**26 // 2**exponent)
    n = -np.arange(256, dtype=np.int64)
    included = n >= smallest
    scaled = (((np.where(included, n, 0) << exponent) * mantissa) + (1 << 30)) >> 31
    return expneg(scaled, _SOFTMAX_BITS), included


@kernel(OperationType.LOG_SOFTMAX)
def log_softmax(call: OperationCall) -> AnyArray:
    """Return (x - max) * beta - log(sum(exp((x - max) * beta))) along one axis, rounding at each step."""
    x = call.array("logits")
    axis = call.axis(x.ndim)
    scaled = np.moveaxis((x - x.max(axis=axis, keepdims=True)) * call.array("beta"), axis, 0)
    total = np.zeros(scaled.shape[1:], x.dtype)
    for power in np.exp(scaled.astype(np.float64)):
        call.check()
        total = (total + power).astype(x.dtype)
    return np.moveaxis(scaled - np.log(total.astype(np.float64)).astype(x.dtype), 0, axis)
