"""Shapes of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

import numpy as np

from driver.operations.call import Call, Shape
from driver.operations.geometry import image_shape, in_layout
from driver.operations.shape import same_quantization, shape_rule
from nnhal.types import OperationType


def new_size(call: Call, direction: str, old: int) -> int:
    """Height or width of the output.

    Raises:
        HalError: GENERAL_FAILURE: it is not positive, or no int32.
    """
    if f"output_{direction}" in call.view.positions:
        new = float(call.integer(f"output_{direction}"))
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            new = float(np.floor(np.float32(old) * np.float32(call.number(f"{direction}_scale"))))
    call.require(1 <= new < 2**31, f"the output's {direction} is {new:g}; it must be at least 1")
    return int(new)


@shape_rule(OperationType.RESIZE_BILINEAR, OperationType.RESIZE_NEAREST_NEIGHBOR)
def resize(call: Call) -> list[Shape]:
    """[batches, new_height, new_width, depth]."""
    batches, height, width, channels = image_shape(call)
    call.require(
        not (call.flag("align_corners") and call.flag("half_pixel_centers")),
        "align_corners and half_pixel_centers are both true",
    )
    same_quantization(call)
    return [in_layout(call, (batches, new_size(call, "height", height), new_size(call, "width", width), channels))]
