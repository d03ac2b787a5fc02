"""Operators that keep the elements and change the shape: RESHAPE, SQUEEZE, EXPAND_DIMS."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.types import Operand, OperandLifeTime, OperandType, OperationType


@converter(BuiltinOperator.RESHAPE)
def reshape(call: OperatorCall) -> None:
    """Convert RESHAPE. The shape is the second input or, in old files, an option."""
    shape = call.input(1) if call.has_input(1) else call.int32_tensor(call.option("NewShape") or (1,))
    call.emit(OperationType.RESHAPE, [call.input(0), shape])


@converter(BuiltinOperator.SQUEEZE)
def squeeze(call: OperatorCall) -> None:
    """Convert SQUEEZE. Without axes, both operations remove every dimension of length 1."""
    rank = len(call.shape(0))
    axes = [call.axis(axis, rank) for axis in call.option("SqueezeDims", ())]
    omitted = Operand(OperandType.TENSOR_INT32, (0,), lifetime=OperandLifeTime.NO_VALUE)
    call.emit(OperationType.SQUEEZE, [call.input(0), call.int32_tensor(axes) if axes else call.add(omitted)])


@converter(BuiltinOperator.EXPAND_DIMS)
def expand_dims(call: OperatorCall) -> None:
    """Convert EXPAND_DIMS. The axis, a tensor in TFLite, is a scalar in NNAPI."""
    call.require_dimensions(0)
    axis = call.axis(call.value(1), len(call.shape(0)) + 1)
    call.emit(OperationType.EXPAND_DIMS, [call.input(0), call.int32_scalar(axis)])
