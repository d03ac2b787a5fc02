"""Resizing of images: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import BuiltinOperator


@converter(BuiltinOperator.RESIZE_BILINEAR, BuiltinOperator.RESIZE_NEAREST_NEIGHBOR)
def resize(call: OperatorCall) -> None:
    """Convert a resize operator. The tensor [height, width] becomes two scalars, width first."""
    size = call.values(1)
    if size.shape != (2,):
        raise TfliteError(f"the size has shape {list(size.shape)}; expected [2]")
    height, width = size.tolist()
    flags = [bool(call.option("align_corners", False)), bool(call.option("half_pixel_centers", False))]
    if all(flags):
        raise TfliteError("NNAPI does not allow aligned corners together with half pixel centers")
    inputs = [
        call.input(0),
        call.int32_scalar(width),
        call.int32_scalar(height),
        call.bool_scalar(False),
        *map(call.bool_scalar, flags),
    ]
    call.emit(call.counterpart, inputs)
