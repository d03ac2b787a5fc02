"""Selection and joining of elements: CONCATENATION, PACK, SPLIT, GATHER, SELECT, STRIDED_SLICE, TOPK_V2, REVERSE_V2."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import OperationType


@converter(BuiltinOperator.CONCATENATION)
def concatenation(call: OperatorCall) -> None:
    """Convert CONCATENATION. The axis is the last input in NNAPI."""
    call.require_no_activation()
    axis = call.axis(call.option("Axis", 0), len(call.shape(0)))
    call.emit(OperationType.CONCATENATION, [*call.inputs(), call.int32_scalar(axis)])


@converter(BuiltinOperator.PACK)
def pack(call: OperatorCall) -> None:
    """Convert PACK. The axis is the first input in NNAPI."""
    call.require_dimensions(0)
    axis = call.axis(call.option("Axis", 0), len(call.shape(0)) + 1)
    call.emit(OperationType.PACK, [call.int32_scalar(axis), *call.inputs()])


@converter(BuiltinOperator.SPLIT)
def split(call: OperatorCall) -> None:
    """Convert SPLIT. TFLite's order of inputs is axis, input."""
    axis = call.axis(call.value(0), len(call.shape(1)))
    call.emit(
        OperationType.SPLIT, [call.input(1), call.int32_scalar(axis), call.int32_scalar(call.option("NumSplits"))]
    )


@converter(BuiltinOperator.GATHER)
def gather(call: OperatorCall) -> None:
    """Convert GATHER. NNAPI's order of inputs is input, axis, indices; it has no batch dimensions."""
    if call.option("BatchDims", 0):
        raise TfliteError("batch dimensions have no NNAPI counterpart")
    call.require_dimensions(1)
    axis = call.axis(call.option("Axis", 0), len(call.shape(0)))
    call.emit(OperationType.GATHER, [call.input(0), call.int32_scalar(axis), call.input(1)])


@converter(BuiltinOperator.SELECT, BuiltinOperator.SELECT_V2)
def select(call: OperatorCall) -> None:
    """Convert SELECT. NNAPI does not broadcast."""
    shapes = [call.shape(position) for position in range(3)]
    if len(set(shapes)) != 1:
        raise TfliteError(f"shapes {', '.join(str(list(shape)) for shape in shapes)} differ; NNAPI needs equal ones")
    call.emit(OperationType.SELECT, call.inputs())


@converter(BuiltinOperator.STRIDED_SLICE)
def strided_slice(call: OperatorCall) -> None:
    """Convert STRIDED_SLICE. NNAPI lacks two of the masks, and ends that are relative to the begin."""
    for name in ("EllipsisMask", "NewAxisMask", "Offset"):
        if call.option(name, 0):
            raise TfliteError(f"option {name} has no NNAPI counterpart")
    masks = [call.int32_scalar(call.option(name, 0)) for name in ("BeginMask", "EndMask", "ShrinkAxisMask")]
    call.emit(OperationType.STRIDED_SLICE, [*call.inputs(), *masks])


@converter(BuiltinOperator.TOPK_V2)
def topk(call: OperatorCall) -> None:
    """Convert TOPK_V2. The count, a tensor in TFLite, is a scalar in NNAPI.

    Among equal values, NNAPI takes the last one first, TFLite the first one.
    """
    call.emit(OperationType.TOPK_V2, [call.input(0), call.int32_scalar(call.value(1))])


@converter(BuiltinOperator.REVERSE_V2)
def reverse(call: OperatorCall) -> None:
    """Convert REVERSE_V2. NNAPI reverses along one axis only."""
    if call.values(1).size != 1:
        raise TfliteError(f"{call.values(1).size} axes; NNAPI reverses along one")
    call.emit(OperationType.REVERSE, [call.input(0), call.input(1)])
