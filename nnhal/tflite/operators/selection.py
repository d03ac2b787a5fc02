"""Choosing and joining elements: CONCATENATION, PACK, SPLIT, GATHER, SELECT, STRIDED_SLICE, TOPK_V2, REVERSE_V2."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import OperationType


@converter(BuiltinOperator.CONCATENATION)
def concatenation(call: Call) -> None:
    """The axis comes last."""
    call.no_activation()
    axis = call.axis(call.option("Axis", 0), len(call.shape(0)))
    call.emit(OperationType.CONCATENATION, [*call.inputs(), call.int32(axis)])


@converter(BuiltinOperator.PACK)
def pack(call: Call) -> None:
    """The axis comes first."""
    call.refuse_scalar(0)
    axis = call.axis(call.option("Axis", 0), len(call.shape(0)) + 1)
    call.emit(OperationType.PACK, [call.int32(axis), *call.inputs()])


@converter(BuiltinOperator.SPLIT)
def split(call: Call) -> None:
    """TFLite's order is axis, input."""
    axis = call.axis(call.value(0), len(call.shape(1)))
    call.emit(OperationType.SPLIT, [call.input(1), call.int32(axis), call.int32(call.option("NumSplits"))])


@converter(BuiltinOperator.GATHER)
def gather(call: Call) -> None:
    """NNAPI has the axis between input and indices, and no batch dimensions."""
    if call.option("BatchDims", 0):
        raise TfliteError("batch dimensions have no NNAPI counterpart")
    call.refuse_scalar(1)
    axis = call.axis(call.option("Axis", 0), len(call.shape(0)))
    call.emit(OperationType.GATHER, [call.input(0), call.int32(axis), call.input(1)])


@converter(BuiltinOperator.SELECT, BuiltinOperator.SELECT_V2)
def select(call: Call) -> None:
    """NNAPI does not broadcast."""
    shapes = [call.shape(position) for position in range(3)]
    if len(set(shapes)) != 1:
        raise TfliteError(f"shapes {', '.join(str(list(shape)) for shape in shapes)} differ; NNAPI needs equal ones")
    call.emit(OperationType.SELECT, call.inputs())


@converter(BuiltinOperator.STRIDED_SLICE)
def strided_slice(call: Call) -> None:
    """NNAPI lacks two of the masks, and ends that count from the beginning."""
    for name in ("EllipsisMask", "NewAxisMask", "Offset"):
        if call.option(name, 0):
            raise TfliteError(f"option {name} has no NNAPI counterpart")
    masks = [call.int32(call.option(name, 0)) for name in ("BeginMask", "EndMask", "ShrinkAxisMask")]
    call.emit(OperationType.STRIDED_SLICE, [*call.inputs(), *masks])


@converter(BuiltinOperator.TOPK_V2)
def topk(call: Call) -> None:
    """The count, a tensor in TFLite, is a scalar. Of equal values NNAPI takes the last first, TFLite the first."""
    call.emit(OperationType.TOPK_V2, [call.input(0), call.int32(call.value(1))])


@converter(BuiltinOperator.REVERSE_V2)
def reverse(call: Call) -> None:
    """NNAPI reverses along one axis."""
    if call.values(1).size != 1:
        raise TfliteError(f"{call.values(1).size} axes; NNAPI reverses along one")
    call.emit(OperationType.REVERSE, [call.input(0), call.input(1)])
