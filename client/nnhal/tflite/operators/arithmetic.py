"""Arithmetic of two tensors: ADD, SUB, MUL, DIV, BATCH_MATMUL."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import FusedActivationFunc, OperandType, OperationType

_FUSED = {
    BuiltinOperator.ADD: OperationType.ADD,
    BuiltinOperator.SUB: OperationType.SUB,
    BuiltinOperator.MUL: OperationType.MUL,
    BuiltinOperator.DIV: OperationType.DIV,
}


@converter(*_FUSED)
def arithmetic(call: OperatorCall) -> None:
    """Convert ADD, SUB, MUL and DIV.

    NNAPI has no fused activation for int32. Its int32 division rounds down, but TFLite's rounds towards zero.
    """
    inputs, activation = [call.input(0), call.input(1)], call.activation()
    if call.operand(inputs[0]).type == OperandType.TENSOR_INT32:
        if activation != call.int32_scalar(FusedActivationFunc.NONE):
            raise TfliteError("fused activation on integers has no NNAPI counterpart")
        if call.operator.code == BuiltinOperator.DIV:
            raise TfliteError("division of integers rounds down in NNAPI, but towards zero in TFLite")
    call.emit(_FUSED[call.operator.code], [*inputs, activation])


@converter(BuiltinOperator.BATCH_MATMUL)
def batch_matmul(call: OperatorCall) -> None:
    """Convert BATCH_MATMUL. NNAPI does not broadcast the batch dimensions."""
    if call.shape(0)[:-2] != call.shape(1)[:-2]:
        raise TfliteError(f"shapes {list(call.shape(0))} and {list(call.shape(1))} differ in the batch dimensions")
    flags = [call.bool_scalar(call.option("AdjX", False)), call.bool_scalar(call.option("AdjY", False))]
    call.emit(OperationType.BATCH_MATMUL, [call.input(0), call.input(1), *flags])
