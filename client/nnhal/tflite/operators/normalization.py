"""Normalizations: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import OperationType


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
