"""Moving and adding elements in space: SPACE_TO_DEPTH and back, BATCH_TO_SPACE_ND, PADV2, MIRROR_PAD, FILL."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import Operand, OperandType, OperationType

_BLOCKS = {
    BuiltinOperator.SPACE_TO_DEPTH: OperationType.SPACE_TO_DEPTH,
    BuiltinOperator.DEPTH_TO_SPACE: OperationType.DEPTH_TO_SPACE,
}
_REAL = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)


@converter(*_BLOCKS)
def blocks(call: Call) -> None:
    """The order of elements is the same."""
    call.emit(_BLOCKS[call.operator.code], [call.input(0), call.int32(call.option("BlockSize"))])


@converter(BuiltinOperator.BATCH_TO_SPACE_ND)
def batch_to_space(call: Call) -> None:
    """NNAPI crops nothing."""
    if call.values(2).any():
        raise TfliteError("crops have no NNAPI counterpart")
    call.emit(OperationType.BATCH_TO_SPACE_ND, [call.input(0), call.input(1)])


@converter(BuiltinOperator.PADV2)
def pad_v2(call: Call) -> None:
    """The value, a tensor in TFLite, is a scalar: the stored integer where it is quantised."""
    input_ = call.input(0)
    value = _scalar_like(call, 2, call.operand(input_))
    call.emit(OperationType.PAD_V2, [input_, call.input(1), value])


@converter(BuiltinOperator.MIRROR_PAD)
def mirror_pad(call: Call) -> None:
    """The modes have the same numbers."""
    call.emit(OperationType.MIRROR_PAD, [call.input(0), call.input(1), call.int32(call.option("Mode", 0))])


@converter(BuiltinOperator.FILL)
def fill(call: Call) -> None:
    """The value, a tensor in TFLite, is a scalar."""
    call.emit(OperationType.FILL, [call.input(0), _scalar_like(call, 1, call.result())])


def _scalar_like(call: Call, position: int, like: Operand) -> int:
    value = call.value(position)
    return call.real(value, like) if like.type in _REAL else call.int32(value)
