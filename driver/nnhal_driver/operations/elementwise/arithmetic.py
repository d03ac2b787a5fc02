"""Shapes of arithmetic with broadcasting: ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW."""

import numpy as np

from nnhal.types import ErrorStatus, FusedActivationFunc, OperandType, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import broadcast_shape, require_max_rank, shape_rule

SUM_SHIFT = 20
"""Number of bits by which quantized addends are shifted left."""
_LARGEST_MULTIPLIER = 1 - 2**-32
"""Larger multipliers are rounded to 1 or are greater than 1."""


def sum_multiplier(call: OperationCall) -> float:
    """Return the multiplier from the common scale of two quantized addends to the output's scale.

    Raises:
        HalError: GENERAL_FAILURE: the multiplier is not between 0 and 1.
    """
    first, second, output = (call.operand(name).scale for name in ("input0", "input1", "output"))
    return _require_below_one(call, 2 * max(first, second) / (2**SUM_SHIFT * output))


def product_multiplier(call: OperationCall) -> float:
    """Return the multiplier from the scale of a quantized product, in float32, to the output's scale.

    Raises:
        HalError: GENERAL_FAILURE: the multiplier is not between 0 and 1.
    """
    first, second, output = (call.operand(name).scale for name in ("input0", "input1", "output"))
    return _require_below_one(call, float(np.float32(first * second)) / output)


def _require_below_one(call: OperationCall, multiplier: float) -> float:
    call.require(
        0 < multiplier < _LARGEST_MULTIPLIER,
        f"the scales of inputs and output give the multiplier {multiplier:g}; it must be between 0 and 1",
    )
    return multiplier


def _fused_shape(call: OperationCall, first: str, second: str) -> list[Shape]:
    """Return the broadcast shape of both inputs of an operation with a fused activation."""
    require_max_rank(call, first, second)
    activation = call.activation()
    if call.operand("output").type == OperandType.TENSOR_INT32:
        call.require(
            activation == FusedActivationFunc.NONE, f"activation is {activation}; TENSOR_INT32 allows only 0 (NONE)"
        )
    return [broadcast_shape(call, first, second)]


def _is_quantized(call: OperationCall) -> bool:
    return call.operand("output").type in (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)


@shape_rule(OperationType.ADD, OperationType.SUB)
def add(call: OperationCall) -> list[Shape]:
    """Return the broadcast shape of both inputs."""
    if _is_quantized(call):
        sum_multiplier(call)
    return _fused_shape(call, "input0", "input1")


@shape_rule(OperationType.MUL)
def mul(call: OperationCall) -> list[Shape]:
    """Return the broadcast shape of both inputs."""
    if _is_quantized(call):
        product_multiplier(call)
    return _fused_shape(call, "input0", "input1")


@shape_rule(OperationType.DIV)
def div(call: OperationCall) -> list[Shape]:
    """Return the broadcast shape of both inputs."""
    return _fused_shape(call, "dividend", "divisor")


@shape_rule(OperationType.MAXIMUM, OperationType.MINIMUM, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def maximum(call: OperationCall) -> list[Shape]:
    """Return the broadcast shape of both inputs."""
    return [broadcast_shape(call, "input0", "input1")]


@shape_rule(OperationType.POW, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def pow_(call: OperationCall) -> list[Shape]:
    """Return the broadcast shape of both inputs."""
    return [broadcast_shape(call, "base", "exponent")]
