"""Rearrangement, padding and filling: SPACE_TO_DEPTH, DEPTH_TO_SPACE, BATCH_TO_SPACE_ND, PADV2, MIRROR_PAD, FILL."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import Operand, OperandType, OperationType

_BLOCKS = {
    BuiltinOperator.SPACE_TO_DEPTH: OperationType.SPACE_TO_DEPTH,
    BuiltinOperator.DEPTH_TO_SPACE: OperationType.DEPTH_TO_SPACE,
}
_REAL = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)


@converter(*_BLOCKS)
def blocks(call: OperatorCall) -> None:
    """Convert SPACE_TO_DEPTH and DEPTH_TO_SPACE. The order of elements is the same in both formats."""
    call.emit(_BLOCKS[call.operator.code], [call.input(0), call.int32_scalar(call.option("BlockSize"))])


@converter(BuiltinOperator.BATCH_TO_SPACE_ND)
def batch_to_space(call: OperatorCall) -> None:
    """Convert BATCH_TO_SPACE_ND. NNAPI has no crops."""
    if call.values(2).any():
        raise TfliteError("crops have no NNAPI counterpart")
    call.emit(OperationType.BATCH_TO_SPACE_ND, [call.input(0), call.input(1)])


@converter(BuiltinOperator.PADV2)
def pad_v2(call: OperatorCall) -> None:
    """Convert PADV2. The value, a tensor in TFLite, is a scalar in NNAPI: the stored integer if it is quantized."""
    input_ = call.input(0)
    value = _scalar_like(call, 2, call.operand(input_))
    call.emit(OperationType.PAD_V2, [input_, call.input(1), value])


@converter(BuiltinOperator.MIRROR_PAD)
def mirror_pad(call: OperatorCall) -> None:
    """Convert MIRROR_PAD. The modes have the same numbers in both formats."""
    call.emit(OperationType.MIRROR_PAD, [call.input(0), call.input(1), call.int32_scalar(call.option("Mode", 0))])


@converter(BuiltinOperator.FILL)
def fill(call: OperatorCall) -> None:
    """Convert FILL. The value, a tensor in TFLite, is a scalar in NNAPI."""
    call.emit(OperationType.FILL, [call.input(0), _scalar_like(call, 1, call.output())])


def _scalar_like(call: OperatorCall, position: int, like: Operand) -> int:
    value = call.value(position)
    return call.float_scalar(value, like) if like.type in _REAL else call.int32_scalar(value)
