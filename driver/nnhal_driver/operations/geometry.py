"""Geometry of images and of windows that slide over them: layout, padding and output size."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from nnhal_driver.operations.call import OperationCall, Shape

MAX_CELLS = 2**32
"""Maximum number of elements of an image with its padding. Without it, a small output could need a huge image."""

SAME = 1
"""Implicit padding scheme that pads. Every other value behaves as VALID."""

PADDINGS = {"height": ("padding_top", "padding_bottom"), "width": ("padding_left", "padding_right")}
"""Arguments with the explicit paddings before and after an axis."""


@dataclass(frozen=True)
class Axis:
    """A window that slides along one axis of an image."""

    input: int
    filter: int
    stride: int
    dilation: int
    before: int
    after: int

    @cached_property
    def size(self) -> int:
        """Number of cells that the dilated window spans."""
        return (self.filter - 1) * self.dilation + 1

    @cached_property
    def out(self) -> int:
        """Number of positions of the window: the length of the output."""
        return (self.input - self.size + self.stride + self.before + self.after) // self.stride


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides over an image with `batches` and `channels`."""

    batches: int
    height: Axis
    width: Axis
    channels: int

    def output_shape(self, channels: int) -> Shape:
        """Return the shape of the result as (batches, height, width, channels)."""
        return (self.batches, self.height.out, self.width.out, channels)

    @property
    def paddings(self) -> list[tuple[int, int]]:
        """Padding before and after batches, height, width and channels."""
        rows, columns = self.height, self.width
        return [(0, 0), (rows.before, rows.after), (columns.before, columns.after), (0, 0)]

    def cell_counts(self) -> NDArray[np.int64]:
        """Return the number of cells inside the image for each position of the window: [height, width, 1]."""
        counts = []
        for axis in (self.height, self.width):
            starts = np.arange(axis.out, dtype=np.int64) * axis.stride - axis.before
            counts.append(np.minimum(starts + axis.filter, axis.input) - np.maximum(starts, 0))
        return np.outer(*counts)[..., np.newaxis]


def image_shape(call: OperationCall, name: str = "input") -> Shape:
    """Return the shape of an image of either layout as (batches, height, width, channels).

    Raises:
        HalError: GENERAL_FAILURE: the rank is not 4, or height, width or channels are 0.
    """
    shape = call.shape(name)
    call.require(len(shape) == 4, f"{name} has rank {len(shape)}; it must be 4")
    batches, height, width, channels = (shape[0], shape[2], shape[3], shape[1]) if call.flag("layout") else shape
    call.require(min(height, width, channels) > 0, f"{name} has an empty image, shape {list(shape)}")
    return batches, height, width, channels


def shape_in_layout(call: OperationCall, shape: Shape) -> Shape:
    """Return a shape (batches, height, width, channels) in the layout of the data."""
    batches, height, width, channels = shape
    return (batches, channels, height, width) if call.flag("layout") else shape


def sliding_window(call: OperationCall, filter_height: int, filter_width: int) -> Window:
    """Return the window of a convolution or pooling operation, as given by its arguments.

    Raises:
        HalError: GENERAL_FAILURE: rank, sizes, strides, dilation or padding break an [execution] constraint.
    """
    batches, height, width, channels = image_shape(call)
    rows = _axis(call, height, filter_height, "height")
    columns = _axis(call, width, filter_width, "width")
    padded = (axis.input + axis.before + axis.after for axis in (rows, columns))
    require_image_size(call, "the padded image", batches, *padded, channels)
    return Window(batches, rows, columns, channels)


def require_image_size(call: OperationCall, name: str, *lengths: int) -> None:
    """Check that an image has at most MAX_CELLS elements.

    Raises:
        HalError: GENERAL_FAILURE: the HAL allows the image, this driver does not.
    """
    if prod(lengths) > MAX_CELLS:
        raise call.failure(f"{name} has {prod(lengths)} elements; this device takes at most {MAX_CELLS}", "")


def _axis(call: OperationCall, size: int, filter_: int, direction: str) -> Axis:
    stride = call.integer(f"stride_{direction}")
    dilation = call.integer(f"dilation_{direction}", 1)
    call.require(filter_ >= 1, f"filter_{direction} is {filter_}; it must be at least 1")
    call.require(stride >= 1, f"stride_{direction} is {stride}; it must be at least 1")
    call.require(dilation >= 1, f"dilation_{direction} is {dilation}; it must be at least 1")
    span = (filter_ - 1) * dilation + 1
    if "padding_scheme" in call.view.positions:
        is_same = call.integer("padding_scheme") == SAME
        before, after = same_padding(size, span, stride) if is_same else (0, 0)
    else:
        before, after = (call.integer(name) for name in PADDINGS[direction])
        for name, padding in zip(PADDINGS[direction], (before, after), strict=True):
            call.require(0 <= padding < span, f"{name} is {padding}; it must be in 0..{span - 1}")
    axis = Axis(size, filter_, stride, dilation, before, after)
    call.require(axis.out >= 1, f"the filter is larger than the padded image along {direction}")
    return axis


def same_padding(size: int, span: int, stride: int) -> tuple[int, int]:
    """Return the padding of SAME: a window of `span` cells then has a position for each stride of an axis."""
    total = max(0, (-(-size // stride) - 1) * stride + span - size)
    return total // 2, total - total // 2
