"""Resizing of images: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.types import OperationType

_RESIZES = {
    BuiltinOperator.RESIZE_BILINEAR: OperationType.RESIZE_BILINEAR,
    BuiltinOperator.RESIZE_NEAREST_NEIGHBOR: OperationType.RESIZE_NEAREST_NEIGHBOR,
}


@converter(*_RESIZES)
def resize(call: OperatorCall) -> None:
    """Convert a resize operator. The tensor [height, width] becomes two scalars, width first."""
    size = call.values(1)
    if size.shape != (2,):
        raise TfliteError(f"the size has shape {list(size.shape)}; expected [2]")
    height, width = size.tolist()
    flags = [bool(call.option("AlignCorners", False)), bool(call.option("HalfPixelCenters", False))]
    if all(flags):
        raise TfliteError("NNAPI does not allow aligned corners together with half pixel centers")
    inputs = [
        call.input(0),
        call.int32_scalar(width),
        call.int32_scalar(height),
        call.bool_scalar(False),
        *map(call.bool_scalar, flags),
    ]
    call.emit(_RESIZES[call.operator.code], inputs)
