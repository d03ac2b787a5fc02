"""Normalisations: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.types import OperationType


@converter(BuiltinOperator.L2_NORMALIZATION)
def l2_normalization(call: Call) -> None:
    """Both work along the last axis."""
    call.no_activation()
    call.emit(OperationType.L2_NORMALIZATION, [call.input(0)])


@converter(BuiltinOperator.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(call: Call) -> None:
    """Both work along the last axis."""
    input_ = call.input(0)
    reals = [call.real(call.option(name), call.operand(input_)) for name in ("Bias", "Alpha", "Beta")]
    call.emit(OperationType.LOCAL_RESPONSE_NORMALIZATION, [input_, call.int32(call.option("Radius")), *reals])
