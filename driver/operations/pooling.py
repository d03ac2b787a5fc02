"""Shapes of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

from driver.operations.call import Call, Shape
from driver.operations.geometry import Window, in_layout, window
from driver.operations.shape import same_quantization, shape_rule
from nnhal.types import OperationType


def pool_window(call: Call) -> Window:
    """The window of a pooling operation."""
    return call.shared("window", lambda: window(call, call.integer("filter_height"), call.integer("filter_width")))


@shape_rule(OperationType.AVERAGE_POOL_2D, OperationType.MAX_POOL_2D, OperationType.L2_POOL_2D)
def pool_2d(call: Call) -> list[Shape]:
    """[batches, out_height, out_width, depth]."""
    space = pool_window(call)
    call.activation()
    same_quantization(call)
    return [in_layout(call, space.output_shape(space.channels))]
