"""Activations with parameters: SOFTMAX, LOG_SOFTMAX, ELU."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.types import OperationType


@converter(BuiltinOperator.SOFTMAX)
def softmax(call: OperatorCall) -> None:
    """Convert SOFTMAX. Both operations use the last axis."""
    input_ = call.input(0)
    call.emit(OperationType.SOFTMAX, [input_, call.float_scalar(call.option("Beta"), call.operand(input_))])


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
