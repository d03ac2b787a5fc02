"""Shapes of TRANSPOSE_CONV_2D."""

from dataclasses import dataclass
from math import prod

from driver.operations.call import Call, Shape
from driver.operations.convolution import check_bias
from driver.operations.geometry import SAME, hold_cells, image_shape, in_layout
from driver.operations.shape import shape_rule
from driver.operations.work import multiply_adds
from nnhal.types import OperationType

_PADDINGS = {"height": ("padding_top", "padding_bottom"), "width": ("padding_left", "padding_right")}


@dataclass(frozen=True, slots=True)
class SpreadAxis:
    """One axis along which every input position adds a filter to the output. Cells before `head` are cut off."""

    input: int
    filter: int
    stride: int
    head: int
    tail: int

    @property
    def full(self) -> int:
        """Cells that the filters reach, with nothing cut off."""
        return (self.input - 1) * self.stride + self.filter

    @property
    def out(self) -> int:
        """Cells of the output; more than `full - head` where the tail is negative."""
        return self.full - self.head - self.tail


def spread(call: Call) -> tuple[SpreadAxis, SpreadAxis]:
    """Height and width of a transposed convolution.

    Raises:
        HalError: GENERAL_FAILURE: rank, sizes, strides or padding break an [execution] constraint.
    """
    shape = call.shape("filter")
    call.require(len(shape) == 4, f"filter has rank {len(shape)}; it must be 4")
    call.require(0 not in shape, f"filter has shape {list(shape)}; it must not be empty")
    batches, height, width, _ = image_shape(call)
    wanted = _wanted(call) if "output_shape" in call.view.positions else (0, 0)
    rows = _axis(call, "height", height, shape[1], wanted[0])
    columns = _axis(call, "width", width, shape[2], wanted[1])
    hold_cells(call, "the output before cutting", batches, rows.full, columns.full, shape[0])
    return rows, columns


def _wanted(call: Call) -> tuple[int, int]:
    """Height and width out of `output_shape`."""
    _, second, third, fourth = call.vector("output_shape", 4)
    return (third, fourth) if call.flag("layout") else (second, third)


def _axis(call: Call, direction: str, size: int, filter_: int, wanted: int) -> SpreadAxis:
    stride = call.integer(f"stride_{direction}")
    call.require(stride >= 1, f"stride_{direction} is {stride}; it must be at least 1")
    if "padding_scheme" in call.view.positions:
        head, tail = _implicit(call.integer("padding_scheme"), wanted, filter_, stride)
    else:
        first, last = _PADDINGS[direction]
        head, tail = call.integer(first), call.integer(last)
        call.require(head >= 0, f"{first} is {head}; it must be at least 0")
    axis = SpreadAxis(size, filter_, stride, head, tail)
    call.require(axis.out >= 1, f"the output's {direction} is {axis.out}; it must be at least 1")
    return axis


def _implicit(scheme: int, wanted: int, filter_: int, stride: int) -> tuple[int, int]:
    if scheme != SAME:
        return 0, 0
    excess = (-(-wanted // stride) - 1) * stride + filter_ - wanted
    head = max(excess, 0) // 2
    return head, excess - head


@multiply_adds(OperationType.TRANSPOSE_CONV_2D, of=("input", "filter"))
def stamps(data: Shape, weights: Shape) -> int:
    """Each input is added to a window of every output channel."""
    return prod(data) * prod(weights[:3])


@shape_rule(OperationType.TRANSPOSE_CONV_2D)
def transpose_conv_2d(call: Call) -> list[Shape]:
    """[batches, out_height, out_width, depth_out]."""
    height, width = spread(call)
    batches, _, _, channels = image_shape(call)
    depth_out, _, _, depth_in = call.shape("filter")
    call.require(depth_in == channels, f"filter has {depth_in} input channels, input {channels}")
    check_bias(call, "filter", depth_out)
    call.activation()
    return [in_layout(call, (batches, height.out, width.out, depth_out))]
