"""Shapes of activations: RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX, LOG_SOFTMAX."""

import numpy as np

from driver.operations.call import Call, Shape
from driver.operations.shape import broadcast, fixed_output, limit_rank, same_quantization, shape_rule
from nnhal.types import OperationType


def swish_multiplier(call: Call) -> float:
    """From 128ths of the input's scale to the output's scale, in float32, for HARD_SWISH.

    Raises:
        HalError: GENERAL_FAILURE: it is not below 1.
    """
    with np.errstate(over="ignore"):
        multiplier = float(np.float32(call.operand("input").scale / 128) / np.float32(call.operand("output").scale))
    call.require(multiplier < 1, f"input scale / 128 / output scale is {multiplier:g}; it must be below 1")
    return multiplier


@shape_rule(OperationType.RELU, OperationType.RELU1, OperationType.RELU6)
def relu(call: Call) -> list[Shape]:
    """As the input."""
    limit_rank(call, "input")
    same_quantization(call)
    return [call.shape("input")]


@shape_rule(OperationType.LOGISTIC, OperationType.TANH)
def logistic(call: Call) -> list[Shape]:
    """As the input."""
    limit_rank(call, "input")
    fixed_output(call)
    scale = call.operand("input").scale
    call.require(scale == 0 or scale > 2**-27, f"input has scale {scale:g}; it must be greater than 2^-27")
    return [call.shape("input")]


@shape_rule(OperationType.ELU, empty=False)
def elu(call: Call) -> list[Shape]:
    """As the input."""
    return [call.shape("input")]


@shape_rule(OperationType.HARD_SWISH)
def hard_swish(call: Call) -> list[Shape]:
    """As the input."""
    if call.operand("input").scale:
        swish_multiplier(call)
    return [call.shape("input")]


@shape_rule(OperationType.PRELU, empty=False)
def prelu(call: Call) -> list[Shape]:
    """The common shape of both inputs."""
    return [broadcast(call, "input", "alpha")]


@shape_rule(OperationType.SOFTMAX)
def softmax(call: Call) -> list[Shape]:
    """As the input."""
    shape, scale = call.shape("input"), call.operand("input").scale
    beta = call.number("beta")
    limit_rank(call, "input")
    call.require(beta > 0, f"beta is {beta:g}; it must be > 0")
    call.axis(len(shape))
    fixed_output(call)
    call.require(scale == 0 or beta * scale * 2**26 > 1, "beta * input scale is too small")
    return [shape]


@shape_rule(OperationType.LOG_SOFTMAX, empty=False)
def log_softmax(call: Call) -> list[Shape]:
    """As the logits."""
    shape = call.shape("logits")
    call.axis(len(shape))
    return [shape]
