"""Kernels of QUANTIZE and DEQUANTIZE."""

import numpy as np

from driver.backends.reference.fixed_point import RANGES
from driver.backends.reference.kernel import Floats, floats, kernel, narrowed
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType


@kernel(OperationType.QUANTIZE)
def quantize(call: Call) -> AnyArray:
    """zero point + round(x / scale), ties away from zero; NaN gives the largest value."""
    output = call.operand("output")
    low, high = RANGES[OperandType(output.type)]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scaled = floats(call, "input") / np.float32(output.scale)
        rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
        # 0.49999997 + 0.5 is 1 in float32: such values round to 0
        rounded = np.where(np.abs(scaled) < 0.5, np.float32(0), rounded) + np.float32(output.zero_point)
    stored = np.maximum(np.where(rounded < high, rounded, np.float32(high)), np.float32(low))
    return stored.astype(DTYPES[output.type])


@kernel(OperationType.DEQUANTIZE)
def dequantize(call: Call) -> AnyArray:
    """(stored - zero point) * scale."""
    operand = call.operand("input")
    difference = (call.array("input").astype(np.int32) - operand.zero_point).astype(np.float32)
    return narrowed(call, _scales(call, difference.ndim) * difference)


def _scales(call: Call, rank: int) -> Floats:
    """The scale, or the scales along their channel."""
    quant = call.channel_quant("input")
    if quant is None:
        return np.array(call.operand("input").scale, np.float32)
    shape = [1] * rank
    shape[quant.channel_dim] = -1
    return np.array(quant.scales, np.float32).reshape(shape)
