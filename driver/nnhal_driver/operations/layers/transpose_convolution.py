"""Shapes of TRANSPOSE_CONV_2D."""

from dataclasses import dataclass
from math import prod

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.geometry import PADDINGS, SAME, image_shape, require_image_size, shape_in_layout
from nnhal_driver.operations.layers.convolution import check_bias_and_activation
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.shape import shape_rule


@dataclass(frozen=True, slots=True)
class TransposedAxis:
    """One axis of a transposed convolution: every input position adds a filter to the output.

    Attributes:
        head: number of cells that are cropped at the start.
        tail: number of cells that are cropped at the end. Cells are added if it is negative.
    """

    input: int
    filter: int
    stride: int
    head: int
    tail: int

    @property
    def full(self) -> int:
        """Number of cells that the filters reach, before cropping."""
        return (self.input - 1) * self.stride + self.filter

    @property
    def out(self) -> int:
        """Number of cells of the output. It exceeds `full - head` if the tail is negative."""
        return self.full - self.head - self.tail


def transposed_axes(call: OperationCall) -> tuple[TransposedAxis, TransposedAxis]:
    """Return the height and width axes of a transposed convolution.

    Raises:
        HalError: GENERAL_FAILURE: rank, sizes, strides or padding break an [execution] constraint.
    """
    shape = call.shape("filter")
    call.require(len(shape) == 4, f"filter has rank {len(shape)}; it must be 4")
    call.require(0 not in shape, f"filter has shape {list(shape)}; it must not be empty")
    batches, height, width, _ = image_shape(call)
    requested = _requested_size(call) if "output_shape" in call.view.positions else (0, 0)
    rows = _axis(call, "height", height, shape[1], requested[0])
    columns = _axis(call, "width", width, shape[2], requested[1])
    require_image_size(call, "the output before cropping", batches, rows.full, columns.full, shape[0])
    return rows, columns


def _requested_size(call: OperationCall) -> tuple[int, int]:
    """Return height and width from the argument `output_shape`."""
    _, second, third, fourth = call.vector("output_shape", 4)
    return (third, fourth) if call.flag("layout") else (second, third)


def _axis(call: OperationCall, direction: str, size: int, filter_: int, requested: int) -> TransposedAxis:
    stride = call.integer(f"stride_{direction}")
    call.require(stride >= 1, f"stride_{direction} is {stride}; it must be at least 1")
    if "padding_scheme" in call.view.positions:
        head, tail = _implicit_padding(call.integer("padding_scheme"), requested, filter_, stride)
    else:
        first, last = PADDINGS[direction]
        head, tail = call.integer(first), call.integer(last)
        call.require(head >= 0, f"{first} is {head}; it must be at least 0")
    axis = TransposedAxis(size, filter_, stride, head, tail)
    call.require(axis.out >= 1, f"the output's {direction} is {axis.out}; it must be at least 1")
    return axis


def _implicit_padding(scheme: int, requested: int, filter_: int, stride: int) -> tuple[int, int]:
    if scheme != SAME:
        return 0, 0
    excess = (-(-requested // stride) - 1) * stride + filter_ - requested
    head = max(excess, 0) // 2
    return head, excess - head


@multiply_adds(OperationType.TRANSPOSE_CONV_2D, of=("input", "filter"))
def transpose_multiply_adds(data: Shape, weights: Shape) -> int:
    """Count a window of every output channel for each input element."""
    return prod(data) * prod(weights[:3])


@shape_rule(OperationType.TRANSPOSE_CONV_2D)
def transpose_conv_2d(call: OperationCall) -> list[Shape]:
    """Return [batches, out_height, out_width, depth_out]."""
    height, width = transposed_axes(call)
    batches, _, _, channels = image_shape(call)
    depth_out, _, _, depth_in = call.shape("filter")
    call.require(depth_in == channels, f"filter has {depth_in} input channels, input {channels}")
    check_bias_and_activation(call, "filter", depth_out)
    return [shape_in_layout(call, (batches, height.out, width.out, depth_out))]
