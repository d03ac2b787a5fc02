"""Shapes of AVERAGE_POOL_2D."""

from driver.operations.call import Call, Shape
from driver.operations.geometry import Window, window
from driver.operations.shape import same_quantization, shape_rule
from nnhal.types import OperationType


def pool_window(call: Call) -> Window:
    """The window of a pooling operation."""
    return window(call, call.integer("filter_height"), call.integer("filter_width"))


@shape_rule(OperationType.AVERAGE_POOL_2D)
def average_pool_2d(call: Call) -> list[Shape]:
    """[batches, out_height, out_width, depth]."""
    space = pool_window(call)
    for axis, direction in ((space.height, "height"), (space.width, "width")):
        call.require(axis.before < axis.filter and axis.after < axis.filter, f"padding exceeds filter_{direction}")
    call.activation()
    same_quantization(call)
    return [space.output_shape(space.channels)]
