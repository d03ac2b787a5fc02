"""Kernels of QUANTIZE, DEQUANTIZE and CAST, and the conversions that other kernels share."""

import numpy as np

from nnhal.types import DTYPES, AnyArray, Operand, OperandType, OperationType
from nnhal_driver.backends.reference.kernel import Floats, as_float32, kernel, map_8bit, to_output_type
from nnhal_driver.backends.reference.numerics.fixed_point import RANGES
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.elementwise.quantization import dequantize_array

_CAST_LIMITS = {
    int(OperandType.TENSOR_QUANT8_ASYMM): (0, 255),
    int(OperandType.TENSOR_INT32): (-(2**31), 2**31 - 1),
}


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def quantize_array(real: Floats, output: Operand) -> AnyArray:
    """Return zero point + round(real / scale) in float32, ties away from zero. NaN gives the largest value."""
    low, high = RANGES[output.type]
    scaled = real / np.float32(output.scale)
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    # 0.49999997 + 0.5 is 1 in float32, but such values must round to 0
    rounded = np.where(np.abs(scaled) < 0.5, np.float32(0), rounded) + np.float32(output.zero_point)
    stored = np.maximum(np.where(rounded < high, rounded, np.float32(high)), np.float32(low))
    return stored.astype(DTYPES[output.type])


@np.errstate(over="ignore", invalid="ignore")
def to_output(call: OperationCall, name: str, real: Floats) -> AnyArray:
    """Convert float32 to an output's type. Quantized: round(real / scale + zero point), ties away from zero."""
    output = call.operand(name)
    dtype = DTYPES[output.type]
    if output.scale == 0:
        return to_output_type(call, real, name)
    limits = np.iinfo(dtype.str)
    exact = (real / np.float32(output.scale) + np.float32(output.zero_point)).astype(np.float64)
    rounded = np.trunc(exact + np.copysign(0.5, exact))
    return np.fmax(np.fmin(rounded, limits.max), limits.min).astype(dtype)


def requantize_argument(call: OperationCall, name: str) -> AnyArray:
    """Return an 8-bit argument on the output's scale: dequantized to float32, then quantized in float64."""
    operand, output = call.operand(name), call.operand("output")
    low, high = RANGES[output.type]

    @np.errstate(over="ignore")
    def convert(stored: AnyArray) -> AnyArray:
        exact = dequantize_array(stored, operand).astype(np.float64) / output.scale + output.zero_point
        inside = np.clip(exact, low, high)
        return np.trunc(inside + np.copysign(0.5, inside)).astype(DTYPES[output.type])

    return map_8bit(call, name, convert)


@kernel(OperationType.QUANTIZE)
def quantize(call: OperationCall) -> AnyArray:
    """Quantize to the output's scale and zero point."""
    return quantize_array(as_float32(call, "input"), call.operand("output"))


@kernel(OperationType.DEQUANTIZE)
def dequantize(call: OperationCall) -> AnyArray:
    """Convert to real values, by one scale or by one scale for each channel."""
    operand, stored = call.operand("input"), call.array("input")
    quant = call.channel_quant("input")
    if quant is None:
        return to_output_type(call, dequantize_array(stored, operand))
    shape = [1] * stored.ndim
    shape[quant.channel_dim] = -1
    return to_output_type(call, stored.astype(np.float32) * np.array(quant.scales, np.float32).reshape(shape))


@kernel(OperationType.CAST)
def cast(call: OperationCall) -> AnyArray:
    """Convert stored values to another type: truncated towards zero and clamped. NaN gives 0."""
    value, type_ = call.array("input"), call.operand("output").type
    dtype = DTYPES[type_]
    if value.dtype == dtype or type_ not in _CAST_LIMITS:
        with np.errstate(over="ignore"):
            return value.astype(dtype, copy=False)
    # float64 represents the limits of int32 exactly, float32 does not
    return np.clip(np.nan_to_num(value.astype(np.float64), copy=False, nan=0), *_CAST_LIMITS[type_]).astype(dtype)
