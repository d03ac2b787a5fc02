"""Shapes of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from math import prod

import numpy as np

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.geometry import image_shape, shape_in_layout
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.shape import shape_rule


def output_size(call: OperationCall, direction: str, old: int) -> int:
    """Return the height or width of the output.

    Raises:
        HalError: GENERAL_FAILURE: the size is not positive, or does not fit int32.
    """
    if f"output_{direction}" in call.view.positions:
        new = float(call.integer(f"output_{direction}"))
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            new = float(np.floor(np.float32(old) * np.float32(call.number(f"{direction}_scale"))))
    call.require(1 <= new < 2**31, f"the output's {direction} is {new:g}; it must be at least 1")
    return int(new)


@shape_rule(OperationType.RESIZE_BILINEAR, OperationType.RESIZE_NEAREST_NEIGHBOR, requantizes=False)
def resize(call: OperationCall) -> list[Shape]:
    """Return [batches, new_height, new_width, depth]."""
    batches, height, width, channels = image_shape(call)
    call.require(
        not (call.flag("align_corners") and call.flag("half_pixel_centers")),
        "align_corners and half_pixel_centers are both true",
    )
    return [
        shape_in_layout(
            call, (batches, output_size(call, "height", height), output_size(call, "width", width), channels)
        )
    ]


@multiply_adds(OperationType.RESIZE_BILINEAR, of=("output",))
def blending_work(output: Shape) -> int:
    """Count four cells for each cell of the output."""
    return 2**6 * prod(output)
