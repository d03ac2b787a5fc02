"""Converters of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter


@converter(OperationType.RESIZE_BILINEAR, OperationType.RESIZE_NEAREST_NEIGHBOR)
def resize(lower: Lowering) -> None:
    """Pass the size as the tensor [height, width]."""
    image, out = lower.image_input(), lower.image_output(like=lower.spec("input"))
    size = lower.constant(lower.writer.shapes[out][1:3])
    flags = {name: lower.call.flag(name) for name in ("align_corners", "half_pixel_centers")}
    lower.emit(lower.operation_name, [image, size], [out], lower.options_name, **flags)
