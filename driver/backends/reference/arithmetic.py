"""Kernels of arithmetic with broadcasting: ADD."""

import numpy as np

from driver.backends.reference.fixed_point import Integers, activation_bounds, encode, rescale
from driver.backends.reference.kernel import activated, floats, is_quantized, kernel
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType

_SHIFT = 20
"""Bits by which quantised addends are scaled up."""


@kernel(OperationType.ADD)
def add(call: Call) -> AnyArray:
    """input0 + input1."""
    if call.operand("input0").type == OperandType.TENSOR_INT32:
        return call.array("input0") + call.array("input1")
    if is_quantized(call, "input0"):
        return _quantized_sum(call)
    return activated(call, floats(call, "input0") + floats(call, "input1"))


def _quantized_sum(call: Call) -> AnyArray:
    """Both addends on a common scale with 20 more bits, added, and scaled to the output."""
    first, second, output = (call.operand(name) for name in ("input0", "input1", "output"))
    twice = 2 * max(first.scale, second.scale)
    total = _scaled(call, "input0", twice) + _scaled(call, "input1", twice)
    mantissa, exponent = encode(twice / float(np.float32(2**_SHIFT) * np.float32(output.scale)))
    call.require(exponent <= 0, "output scale is too small for the input scales")
    low, high = activation_bounds(output, call.activation())
    stored = rescale(total, mantissa, exponent) + output.zero_point
    return np.clip(stored, low, high).astype(DTYPES[output.type])


def _scaled(call: Call, name: str, twice: float) -> Integers:
    operand = call.operand(name)
    return rescale((call.array(name).astype(np.int64) - operand.zero_point) << _SHIFT, *encode(operand.scale / twice))
