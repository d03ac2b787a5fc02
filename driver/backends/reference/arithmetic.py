"""Kernels of arithmetic with broadcasting: ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW."""

import numpy as np

from driver.backends.reference.fixed_point import Integers, activation_bounds, encode, rescale
from driver.backends.reference.kernel import activated, floats, is_quantized, kernel, narrowed, tabulated
from driver.backends.reference.quantization import requantized
from driver.operations.arithmetic import SUM_SHIFT, product_multiplier, sum_multiplier
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType


@kernel(OperationType.ADD)
def add(call: Call) -> AnyArray:
    """input0 + input1."""
    if is_quantized(call, "input0"):
        return _quantized_sum(call, 1)
    if _is_integer(call):
        return call.array("input0") + call.array("input1")
    return activated(call, floats(call, "input0") + floats(call, "input1"))


@kernel(OperationType.SUB)
def sub(call: Call) -> AnyArray:
    """input0 - input1."""
    if is_quantized(call, "input0"):
        return _quantized_sum(call, -1)
    if _is_integer(call):
        return call.array("input0") - call.array("input1")
    return activated(call, floats(call, "input0") - floats(call, "input1"))


@kernel(OperationType.MUL)
def mul(call: Call) -> AnyArray:
    """input0 * input1."""
    if is_quantized(call, "input0"):
        return _stored(call, _centred(call, "input0") * _centred(call, "input1"), product_multiplier(call))
    if _is_integer(call):
        return call.array("input0") * call.array("input1")
    return activated(call, floats(call, "input0") * floats(call, "input1"))


@kernel(OperationType.DIV)
def div(call: Call) -> AnyArray:
    """dividend / divisor. Integers are rounded down; by 0 they give 0."""
    if _is_integer(call):
        return call.array("dividend") // call.array("divisor")
    return activated(call, floats(call, "dividend") / floats(call, "divisor"))


@kernel(OperationType.MAXIMUM)
def maximum(call: Call) -> AnyArray:
    """The larger value; input0 where either is NaN."""
    a, b = _on_output_scale(call, "input0"), _on_output_scale(call, "input1")
    return np.where(a < b, b, a)


@kernel(OperationType.MINIMUM)
def minimum(call: Call) -> AnyArray:
    """The smaller value; input0 where either is NaN."""
    a, b = _on_output_scale(call, "input0"), _on_output_scale(call, "input1")
    return np.where(b < a, b, a)


@kernel(OperationType.POW)
def pow_(call: Call) -> AnyArray:
    """base ^ exponent."""
    return narrowed(call, floats(call, "base") ** floats(call, "exponent"))


def _is_integer(call: Call) -> bool:
    return call.operand("output").type == OperandType.TENSOR_INT32


def _on_output_scale(call: Call, name: str) -> AnyArray:
    return requantized(call, name) if is_quantized(call, name) else call.array(name)


def _centred(call: Call, name: str) -> Integers:
    """Stored values less their zero point."""
    return call.array(name).astype(np.int64) - call.operand(name).zero_point


def _quantized_sum(call: Call, sign: int) -> AnyArray:
    """Both addends on a common scale, added, and scaled to the output."""
    total = _addend(call, "input0", 1) + _addend(call, "input1", sign)
    return _stored(call, total, sum_multiplier(call))


def _addend(call: Call, name: str, sign: int) -> Integers:
    """An addend on the scale that both share, with 20 more bits.

    `sign` goes with the multiplier, not with the value: that decides ties.
    """
    operand = call.operand(name)
    mantissa, exponent = encode(operand.scale / (2 * max(call.operand("input0").scale, call.operand("input1").scale)))

    def scaled(stored: AnyArray) -> Integers:
        return rescale((stored.astype(np.int64) - operand.zero_point) << SUM_SHIFT, sign * mantissa, exponent)

    return tabulated(call, name, scaled)


def _stored(call: Call, value: Integers, multiplier: float) -> AnyArray:
    """A value times a multiplier, as stored values of the output."""
    output = call.operand("output")
    low, high = activation_bounds(output, call.activation())
    stored = rescale(value, *encode(multiplier)) + output.zero_point
    return np.clip(stored, low, high).astype(DTYPES[output.type])
