"""Arithmetic of two tensors: ADD, SUB, MUL, DIV, BATCH_MATMUL."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import FusedActivationFunc, OperandType, OperationType

_FUSED = {
    BuiltinOperator.ADD: OperationType.ADD,
    BuiltinOperator.SUB: OperationType.SUB,
    BuiltinOperator.MUL: OperationType.MUL,
    BuiltinOperator.DIV: OperationType.DIV,
}


@converter(*_FUSED)
def arithmetic(call: Call) -> None:
    """NNAPI's int32 arithmetic has no activation, and its division rounds down where TFLite's cuts off."""
    inputs, activation = [call.input(0), call.input(1)], call.activation()
    if call.operand(inputs[0]).type == OperandType.TENSOR_INT32:
        if activation != call.int32(FusedActivationFunc.NONE):
            raise TfliteError("fused activation on integers has no NNAPI counterpart")
        if call.operator.code == BuiltinOperator.DIV:
            raise TfliteError("division of integers rounds otherwise in NNAPI")
    call.emit(_FUSED[call.operator.code], [*inputs, activation])


@converter(BuiltinOperator.BATCH_MATMUL)
def batch_matmul(call: Call) -> None:
    """NNAPI does not broadcast the batch dimensions."""
    if call.shape(0)[:-2] != call.shape(1)[:-2]:
        raise TfliteError(f"shapes {list(call.shape(0))} and {list(call.shape(1))} differ in the batch dimensions")
    flags = [call.flag(call.option("AdjX", False)), call.flag(call.option("AdjY", False))]
    call.emit(OperationType.BATCH_MATMUL, [call.input(0), call.input(1), *flags])
