"""Shapes of activations: RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX, LOG_SOFTMAX."""

from math import prod

import numpy as np

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.multiply_adds import STEP, multiply_adds
from nnhal_driver.operations.shape import (
    broadcast_shape,
    require_output_quantization,
    shape_rule,
)


def swish_multiplier(call: OperationCall) -> float:
    """Return the multiplier from 1/128 of the input's scale to the output's scale, in float32, for HARD_SWISH.

    Raises:
        HalError: GENERAL_FAILURE: the multiplier is not below 1.
    """
    with np.errstate(over="ignore"):
        multiplier = float(np.float32(call.operand("input").scale / 128) / np.float32(call.operand("output").scale))
    call.require(multiplier < 1, f"input scale / 128 / output scale is {multiplier:g}; it must be below 1")
    return multiplier


@shape_rule(OperationType.ELU, empty=False)
@shape_rule(OperationType.RELU, OperationType.RELU1, OperationType.RELU6, rank_4=True, requantizes=False)
def relu(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    return [call.shape("input")]


@shape_rule(OperationType.LOGISTIC, OperationType.TANH, rank_4=True)
def logistic(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    require_output_quantization(call)
    scale = call.operand("input").scale
    call.require(scale == 0 or scale > 2**-27, f"input has scale {scale:g}; it must be greater than 2^-27")
    return [call.shape("input")]


@shape_rule(OperationType.HARD_SWISH)
def hard_swish(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    if call.operand("input").scale:
        swish_multiplier(call)
    return [call.shape("input")]


@shape_rule(OperationType.PRELU, empty=False)
def prelu(call: OperationCall) -> list[Shape]:
    """Return the broadcast shape of both inputs."""
    return [broadcast_shape(call, "input", "alpha")]


@shape_rule(OperationType.SOFTMAX, rank_4=True)
def softmax(call: OperationCall) -> list[Shape]:
    """Return the shape of the input."""
    shape, scale = call.shape("input"), call.operand("input").scale
    beta = call.number("beta")
    call.require(beta > 0, f"beta is {beta:g}; it must be > 0")
    call.axis(len(shape))
    require_output_quantization(call)
    call.require(scale == 0 or beta * scale * 2**26 > 1, "beta * input scale is too small")
    return [shape]


@shape_rule(OperationType.LOG_SOFTMAX, empty=False)
def log_softmax(call: OperationCall) -> list[Shape]:
    """Return the shape of the logits."""
    shape = call.shape("logits")
    call.axis(len(shape))
    return [shape]


@multiply_adds(OperationType.LOG_SOFTMAX, of=("logits",))
def summation_work(shape: Shape) -> int:
    """Count a step for each index along the axis, and exponentials in float64."""
    return STEP * max(shape) // 8 + 2**4 * prod(shape)
