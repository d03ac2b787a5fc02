"""Resizing of images: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import OperationType

_RESIZES = {
    BuiltinOperator.RESIZE_BILINEAR: OperationType.RESIZE_BILINEAR,
    BuiltinOperator.RESIZE_NEAREST_NEIGHBOR: OperationType.RESIZE_NEAREST_NEIGHBOR,
}


@converter(*_RESIZES)
def resize(call: Call) -> None:
    """TFLite's size is the tensor [height, width]; NNAPI's are scalars, width first."""
    size = call.values(1)
    if size.shape != (2,):
        raise TfliteError(f"the size has shape {list(size.shape)}, not [2]")
    height, width = size.tolist()
    flags = [call.option("AlignCorners", False), call.option("HalfPixelCenters", False)]
    inputs = [call.input(0), call.int32(width), call.int32(height), call.flag(False), *map(call.flag, flags)]
    call.emit(_RESIZES[call.operator.code], inputs)
