"""Kernels of arithmetic with broadcasting: ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW."""

import numpy as np

from nnhal.types import AnyArray, OperandType, OperationType
from nnhal_driver.backends.reference.elementwise.quantization import requantize_argument
from nnhal_driver.backends.reference.kernel import (
    apply_activation,
    as_float32,
    is_quantized,
    kernel,
    map_8bit,
    to_output_type,
)
from nnhal_driver.backends.reference.numerics.fixed_point import Integers, encode, rescale, to_stored
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.elementwise.arithmetic import SUM_SHIFT, product_multiplier, sum_multiplier

_UFUNCS: dict[int, np.ufunc] = {
    OperationType.ADD: np.add,
    OperationType.SUB: np.subtract,
    OperationType.MUL: np.multiply,
}


@kernel(*_UFUNCS)
def add_sub_mul(call: OperationCall) -> AnyArray:
    """Return input0 + input1, input0 - input1 or input0 * input1. int32 wraps around."""
    combine = _UFUNCS[call.view.type]
    if is_quantized(call, "input0"):
        if combine is np.multiply:
            return _quantized_product(call)
        return _quantized_sum(call, 1 if combine is np.add else -1)
    if _is_integer(call):
        return np.asarray(combine(call.array("input0"), call.array("input1")))
    return apply_activation(call, combine(as_float32(call, "input0"), as_float32(call, "input1")))


@kernel(OperationType.DIV)
def div(call: OperationCall) -> AnyArray:
    """Return dividend / divisor. Integer quotients are rounded down; division by 0 gives 0."""
    if _is_integer(call):
        return call.array("dividend") // call.array("divisor")
    return apply_activation(call, as_float32(call, "dividend") / as_float32(call, "divisor"))


@kernel(OperationType.MAXIMUM, OperationType.MINIMUM)
def extreme(call: OperationCall) -> AnyArray:
    """Return the larger or the smaller value, or input0 where either is NaN."""
    loses = np.less if call.view.type == OperationType.MAXIMUM else np.greater
    a, b = _to_output_scale(call, "input0"), _to_output_scale(call, "input1")
    return np.where(loses(a, b), b, a)


@kernel(OperationType.POW)
def pow_(call: OperationCall) -> AnyArray:
    """Return base ^ exponent."""
    return to_output_type(call, as_float32(call, "base") ** as_float32(call, "exponent"))


def _is_integer(call: OperationCall) -> bool:
    return call.operand("output").type == OperandType.TENSOR_INT32


def _to_output_scale(call: OperationCall, name: str) -> AnyArray:
    return requantize_argument(call, name) if is_quantized(call, name) else call.array(name)


def _quantized_product(call: OperationCall) -> AnyArray:
    """Multiply stored values less their zero points, then scale the products to the output."""
    factors = [call.array(name).astype(np.int64) - call.operand(name).zero_point for name in ("input0", "input1")]
    return _store(call, factors[0] * factors[1], product_multiplier(call))


def _quantized_sum(call: OperationCall, sign: int) -> AnyArray:
    """Add both inputs on a common scale, then scale the sum to the output."""
    total = _scale_addend(call, "input0", 1) + _scale_addend(call, "input1", sign)
    return _store(call, total, sum_multiplier(call))


def _scale_addend(call: OperationCall, name: str, sign: int) -> Integers:
    """Return an addend on the scale that both share, shifted left by SUM_SHIFT bits.

    `sign` is applied to the multiplier, not to the value: this decides the rounding of ties.
    """
    operand = call.operand(name)
    mantissa, exponent = encode(operand.scale / (2 * max(call.operand("input0").scale, call.operand("input1").scale)))

    def scaled(stored: AnyArray) -> Integers:
        return rescale((stored.astype(np.int64) - operand.zero_point) << SUM_SHIFT, sign * mantissa, exponent)

    return map_8bit(call, name, scaled)


def _store(call: OperationCall, value: Integers, multiplier: float) -> AnyArray:
    """Multiply by a multiplier and convert to stored values of the output."""
    output = call.operand("output")
    return to_stored(rescale(value, *encode(multiplier)) + output.zero_point, output, call.activation())
