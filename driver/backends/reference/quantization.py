"""Kernels of QUANTIZE, DEQUANTIZE and CAST, and the conversions that other kernels share."""

import numpy as np

from driver.backends.reference.fixed_point import RANGES
from driver.backends.reference.kernel import Floats, floats, kernel, narrowed, tabulated
from driver.operations.call import Call
from driver.operations.quantization import dequantized
from nnhal.types import DTYPES, AnyArray, Operand, OperandType, OperationType

_CAST_LIMITS = {
    int(OperandType.TENSOR_QUANT8_ASYMM): (0, 255),
    int(OperandType.TENSOR_INT32): (-(2**31), 2**31 - 1),
}


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def quantized(real: Floats, output: Operand) -> AnyArray:
    """zero point + round(real / scale) in float32, ties away from zero; NaN gives the largest value."""
    low, high = RANGES[OperandType(output.type)]
    scaled = real / np.float32(output.scale)
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    # 0.49999997 + 0.5 is 1 in float32: such values round to 0
    rounded = np.where(np.abs(scaled) < 0.5, np.float32(0), rounded) + np.float32(output.zero_point)
    stored = np.maximum(np.where(rounded < high, rounded, np.float32(high)), np.float32(low))
    return stored.astype(DTYPES[output.type])


@np.errstate(over="ignore", invalid="ignore")
def to_output(call: Call, name: str, real: Floats) -> AnyArray:
    """float32 results as an output holds them: narrowed, or round(real / scale + zero point), ties away from zero."""
    output = call.operand(name)
    dtype = DTYPES[output.type]
    if output.scale == 0:
        return narrowed(call, real, name)
    limits = np.iinfo(dtype.str)
    exact = (real / np.float32(output.scale) + np.float32(output.zero_point)).astype(np.float64)
    rounded = np.trunc(exact + np.copysign(0.5, exact))
    return np.fmax(np.fmin(rounded, limits.max), limits.min).astype(dtype)


def requantized(call: Call, name: str) -> AnyArray:
    """An 8-bit argument on the output's scale: its float32 value, quantised in double, ties away from zero."""
    operand, output = call.operand(name), call.operand("output")
    low, high = RANGES[OperandType(output.type)]

    @np.errstate(over="ignore")
    def convert(stored: AnyArray) -> AnyArray:
        exact = dequantized(stored, operand).astype(np.float64) / output.scale + output.zero_point
        inside = np.clip(exact, low, high)
        return np.trunc(inside + np.copysign(0.5, inside)).astype(DTYPES[output.type])

    return tabulated(call, name, convert)


@kernel(OperationType.QUANTIZE)
def quantize(call: Call) -> AnyArray:
    """To the output's scale and zero point."""
    return quantized(floats(call, "input"), call.operand("output"))


@kernel(OperationType.DEQUANTIZE)
def dequantize(call: Call) -> AnyArray:
    """To real values, with one scale or with one for each channel."""
    operand, stored = call.operand("input"), call.array("input")
    quant = call.channel_quant("input")
    if quant is None:
        return narrowed(call, dequantized(stored, operand))
    shape = [1] * stored.ndim
    shape[quant.channel_dim] = -1
    return narrowed(call, stored.astype(np.float32) * np.array(quant.scales, np.float32).reshape(shape))


@kernel(OperationType.CAST)
def cast(call: Call) -> AnyArray:
    """Stored values as numbers of another type: cut towards zero, clamped; NaN gives 0."""
    value, type_ = call.array("input"), call.operand("output").type
    dtype = DTYPES[type_]
    if value.dtype == dtype or type_ not in _CAST_LIMITS:
        with np.errstate(over="ignore"):
            return value.astype(dtype, copy=False)
    # float64 holds the limits of int32, float32 does not
    return np.clip(np.nan_to_num(value.astype(np.float64), nan=0), *_CAST_LIMITS[type_]).astype(dtype)
