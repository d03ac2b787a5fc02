"""Operators that keep the elements and change the shape: RESHAPE, SQUEEZE, EXPAND_DIMS."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.types import Operand, OperandLifeTime, OperandType, OperationType


@converter(BuiltinOperator.RESHAPE)
def reshape(call: Call) -> None:
    """The shape is the second input or, in old files, an option."""
    shape = call.input(1) if call.has(1) else call.int32s(call.option("NewShape") or (1,))
    call.emit(OperationType.RESHAPE, [call.input(0), shape])


@converter(BuiltinOperator.SQUEEZE)
def squeeze(call: Call) -> None:
    """Without axes, both remove every dimension of length 1."""
    rank = len(call.shape(0))
    axes = [call.axis(axis, rank) for axis in call.option("SqueezeDims", ())]
    omitted = Operand(OperandType.TENSOR_INT32, (0,), lifetime=OperandLifeTime.NO_VALUE)
    call.emit(OperationType.SQUEEZE, [call.input(0), call.int32s(axes) if axes else call.add(omitted)])


@converter(BuiltinOperator.EXPAND_DIMS)
def expand_dims(call: Call) -> None:
    """The axis, a tensor in TFLite, is a scalar."""
    call.refuse_scalar(0)
    axis = call.axis(call.value(1), len(call.shape(0)) + 1)
    call.emit(OperationType.EXPAND_DIMS, [call.input(0), call.int32(axis)])
