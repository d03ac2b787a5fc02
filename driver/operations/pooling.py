"""Shapes of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

from driver.operations.call import Call, Shape
from driver.operations.geometry import Window, in_layout, window
from driver.operations.shape import same_quantization, shape_rule
from nnhal.types import OperationType

MAX_FILTER = 2**20
"""Cells of a filter along one axis. It costs nothing to ask for 2^31 of them around an image of one cell, and it would
take days to look at them."""


def pool_window(call: Call) -> Window:
    """The window of a pooling operation.

    Raises:
        HalError: GENERAL_FAILURE: an [execution] constraint is broken, or the filter is larger than this driver takes.
    """
    return call.shared("window", lambda: window(call, _size(call, "filter_height"), _size(call, "filter_width")))


def _size(call: Call, name: str) -> int:
    size = call.integer(name)
    if size > MAX_FILTER:
        raise call.failure(f"{name} is {size}; this device takes at most {MAX_FILTER}", "")
    return size


@shape_rule(OperationType.AVERAGE_POOL_2D, OperationType.MAX_POOL_2D, OperationType.L2_POOL_2D)
def pool_2d(call: Call) -> list[Shape]:
    """[batches, out_height, out_width, depth]."""
    space = pool_window(call)
    call.activation()
    same_quantization(call)
    return [in_layout(call, space.output_shape(space.channels))]
