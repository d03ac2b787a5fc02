"""Shapes of arithmetic with broadcasting: ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW."""

import numpy as np

from driver.operations.call import Call, Shape
from driver.operations.shape import broadcast, limit_rank, shape_rule
from nnhal.types import ErrorStatus, FusedActivationFunc, OperandType, OperationType

SUM_SHIFT = 20
"""Bits by which quantised addends are scaled up."""
_LARGEST_MULTIPLIER = 1 - 2**-32
"""Multipliers from here on are rounded to 1, or are above it."""


def sum_multiplier(call: Call) -> float:
    """From the common scale of two quantised addends to the output's.

    Raises:
        HalError: GENERAL_FAILURE: it is not below 1.
    """
    first, second, output = (call.operand(name).scale for name in ("input0", "input1", "output"))
    return _below_one(call, 2 * max(first, second) / (2**SUM_SHIFT * output))


def product_multiplier(call: Call) -> float:
    """From the scale of a quantised product, in float32, to the output's.

    Raises:
        HalError: GENERAL_FAILURE: it is not between 0 and 1.
    """
    first, second, output = (call.operand(name).scale for name in ("input0", "input1", "output"))
    return _below_one(call, float(np.float32(first * second)) / output)


def _below_one(call: Call, multiplier: float) -> float:
    call.require(
        0 < multiplier < _LARGEST_MULTIPLIER,
        f"the scales of inputs and output give the multiplier {multiplier:g}; it must be between 0 and 1",
    )
    return multiplier


def _fused(call: Call, first: str, second: str) -> list[Shape]:
    """The common shape of both inputs of an operation with a fused activation."""
    limit_rank(call, first, second)
    activation = call.activation()
    if call.operand("output").type == OperandType.TENSOR_INT32:
        call.require(activation == FusedActivationFunc.NONE, "TENSOR_INT32 takes no fused activation")
    return [broadcast(call, first, second)]


def _is_quantized(call: Call) -> bool:
    return call.operand("output").type in (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)


@shape_rule(OperationType.ADD, OperationType.SUB)
def add(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    if _is_quantized(call):
        sum_multiplier(call)
    return _fused(call, "input0", "input1")


@shape_rule(OperationType.MUL)
def mul(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    if _is_quantized(call):
        product_multiplier(call)
    return _fused(call, "input0", "input1")


@shape_rule(OperationType.DIV)
def div(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    return _fused(call, "dividend", "divisor")


@shape_rule(OperationType.MAXIMUM, OperationType.MINIMUM, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def maximum(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    return [broadcast(call, "input0", "input1")]


@shape_rule(OperationType.POW, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def pow_(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    return [broadcast(call, "base", "exponent")]
