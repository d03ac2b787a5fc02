"""Converters of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter

_OPERATORS = {
    OperationType.RESIZE_BILINEAR: ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
    OperationType.RESIZE_NEAREST_NEIGHBOR: ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
}


@converter(*_OPERATORS)
def resize(lower: Lowering) -> None:
    """Pass the size as the tensor [height, width]."""
    operator, options = _OPERATORS[OperationType(lower.call.view.type)]
    image, out = lower.image_input(), lower.image_output(like=lower.spec("input"))
    size = lower.constant(lower.writer.shapes[out][1:3])
    flags = {name: lower.call.flag(name) for name in ("align_corners", "half_pixel_centers")}
    lower.emit(operator, [image, size], [out], options, **flags)
