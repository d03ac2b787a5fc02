"""Activations with parameters, and normalizations: SOFTMAX, ELU, RELU_0_TO_1, L2_NORMALIZATION and others."""

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import OperationType


@converter(BuiltinOperator.SOFTMAX)
def softmax(call: OperatorCall) -> None:
    """Convert SOFTMAX. Both operations use the last axis."""
    input_ = call.input(0)
    call.emit(OperationType.SOFTMAX, [input_, call.float_scalar(call.option("beta"), call.operand(input_))])


@converter(BuiltinOperator.LOG_SOFTMAX)
def log_softmax(call: OperatorCall) -> None:
    """Convert LOG_SOFTMAX. TFLite has no beta and always uses the last axis."""
    input_ = call.input(0)
    call.emit(OperationType.LOG_SOFTMAX, [input_, call.float_scalar(1.0, call.operand(input_)), call.int32_scalar(-1)])


@converter(BuiltinOperator.ELU)
def elu(call: OperatorCall) -> None:
    """Convert ELU. In TFLite, alpha is 1."""
    input_ = call.input(0)
    call.emit(OperationType.ELU, [input_, call.float_scalar(1.0, call.operand(input_))])


@converter(BuiltinOperator.LEAKY_RELU)
def leaky_relu(call: OperatorCall) -> None:
    """Convert LEAKY_RELU to PRELU with one slope."""
    call.require_unquantized("NNAPI's PRELU rounds in another way")
    input_ = call.input(0)
    slope = call.constant(np.array([call.option("alpha")]), call.operand(input_))
    call.emit(OperationType.PRELU, [input_, slope])


@converter(BuiltinOperator.RELU_0_TO_1)
def relu_0_to_1(call: OperatorCall) -> None:
    """Convert RELU_0_TO_1: limit to -1 and 1, then to 0."""
    shape = call.known_shape(0) or (1,)
    call.chain(call.input(0), (OperationType.RELU1, [], shape), (OperationType.RELU, [], shape))


@converter(BuiltinOperator.L2_NORMALIZATION)
def l2_normalization(call: OperatorCall) -> None:
    """Convert L2_NORMALIZATION. Both operations use the last axis."""
    call.require_no_activation()
    call.emit(OperationType.L2_NORMALIZATION, [call.input(0)])


@converter(BuiltinOperator.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(call: OperatorCall) -> None:
    """Convert LOCAL_RESPONSE_NORMALIZATION. Both operations use the last axis."""
    input_ = call.input(0)
    scalars = [call.float_scalar(call.option(name), call.operand(input_)) for name in ("bias", "alpha", "beta")]
    call.emit(OperationType.LOCAL_RESPONSE_NORMALIZATION, [input_, call.int32_scalar(call.option("radius")), *scalars])
