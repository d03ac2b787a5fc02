"""Shapes of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

from math import prod

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.geometry import Window, shape_in_layout, sliding_window
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.shape import shape_rule

MAX_FILTER = 2**20
"""Maximum length of a filter along one axis. A filter of 2^31 cells around an image of one cell would run for days."""


def pool_window(call: OperationCall) -> Window:
    """Return the window of a pooling operation.

    Raises:
        HalError: GENERAL_FAILURE: an [execution] constraint is broken, or the filter is larger than this driver takes.
    """
    return call.share(
        "window", lambda: sliding_window(call, _filter_size(call, "filter_height"), _filter_size(call, "filter_width"))
    )


def _filter_size(call: OperationCall, name: str) -> int:
    size = call.integer(name)
    if size > MAX_FILTER:
        raise call.failure(f"{name} is {size}; this device takes at most {MAX_FILTER}", "")
    return size


@shape_rule(OperationType.AVERAGE_POOL_2D, OperationType.MAX_POOL_2D, OperationType.L2_POOL_2D, requantizes=False)
def pool_2d(call: OperationCall) -> list[Shape]:
    """Return [batches, out_height, out_width, depth]."""
    space = pool_window(call)
    call.activation()
    return [shape_in_layout(call, space.output_shape(space.channels))]


@multiply_adds(
    *(OperationType.AVERAGE_POOL_2D, OperationType.MAX_POOL_2D, OperationType.L2_POOL_2D),
    of=("output", "filter_width", "filter_height"),
)
def window_work(output: Shape, width: int, height: int) -> int:
    """Count the cells of a window along each axis."""
    return 4 * prod(output) * (width + height)
