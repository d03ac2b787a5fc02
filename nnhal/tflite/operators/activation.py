"""Activations with parameters: SOFTMAX, LOG_SOFTMAX, ELU."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.types import OperationType


@converter(BuiltinOperator.SOFTMAX)
def softmax(call: Call) -> None:
    """Both work along the last axis."""
    input_ = call.input(0)
    call.emit(OperationType.SOFTMAX, [input_, call.real(call.option("Beta"), call.operand(input_))])


@converter(BuiltinOperator.LOG_SOFTMAX)
def log_softmax(call: Call) -> None:
    """TFLite's has no beta and the last axis."""
    input_ = call.input(0)
    call.emit(OperationType.LOG_SOFTMAX, [input_, call.real(1.0, call.operand(input_)), call.int32(-1)])


@converter(BuiltinOperator.ELU)
def elu(call: Call) -> None:
    """TFLite's alpha is 1."""
    input_ = call.input(0)
    call.emit(OperationType.ELU, [input_, call.real(1.0, call.operand(input_))])
