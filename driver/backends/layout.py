"""Layouts of images, and copies from one to another.

A backend that computes in a layout of its own says so for operands (`CompiledSubgraph.layouts`). The host then converts
on the way from and to others, and not between two that use the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from nnhal.errors import general_failure
from nnhal.types import AnyArray

PACK = 4
"""Channels that lie together in NC4HW4."""


class Layout(Enum):
    """How an image of N batches, C channels, height H and width W lies in memory, row-major.

    NC4HW4 is [N, ceil(C / 4), H, W, 4]; channels that there are not hold zeros.
    """

    NHWC = auto()
    NCHW = auto()
    NC4HW4 = auto()


@dataclass(frozen=True, slots=True)
class Relayout:
    """The layout that an operand has in the model, NHWC or NCHW, and the backend's own."""

    model: Layout
    own: Layout

    def to_own(self, array: AnyArray) -> AnyArray:
        """From the model's layout."""
        return convert(array, self.model, self.own)

    def own_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape of rank 4 of the model, as it is in the backend's layout."""
        batches, *image = shape
        height, width, channels = image if self.model is Layout.NHWC else (*image[1:], image[0])
        return {
            Layout.NHWC: (batches, height, width, channels),
            Layout.NCHW: (batches, channels, height, width),
            Layout.NC4HW4: (batches, -(-channels // PACK), height, width, PACK),
        }[self.own]

    def to_model(self, array: AnyArray, channels: int) -> AnyArray:
        """From the backend's layout."""
        return convert(array, self.own, self.model, channels)


def convert(array: AnyArray, source: Layout, target: Layout, channels: int = 0) -> AnyArray:
    """An image in another layout: a new array, or the same where nothing changes.

    Args:
        channels: C; only read where the source is NC4HW4.

    Raises:
        HalError: GENERAL_FAILURE: an array of this rank is no image in the source's layout.
    """
    rank = 5 if source is Layout.NC4HW4 else 4
    if array.ndim != rank:
        raise general_failure(f"an array of shape {list(array.shape)} has no layout {source.name}")
    if source is target:
        return array
    return _FROM[target](_TO_NCHW[source](array, channels))


def _packed(image: AnyArray) -> AnyArray:
    batches, channels, height, width = image.shape
    packs = -(-channels // PACK)
    made = np.zeros((batches, packs, height, width, PACK), image.dtype)
    filled = made.transpose(0, 1, 4, 2, 3)  # [N, packs, 4, H, W], a view
    for pack in range(packs):
        part = image[:, pack * PACK : (pack + 1) * PACK]
        filled[:, pack, : part.shape[1]] = part
    return made


def _unpacked(image: AnyArray, channels: int) -> AnyArray:
    batches, packs, height, width, _ = image.shape
    if not packs * PACK - PACK < channels <= packs * PACK:
        raise general_failure(f"{packs} packs of {PACK} channels do not hold {channels} channels")
    return image.transpose(0, 1, 4, 2, 3).reshape(batches, packs * PACK, height, width)[:, :channels]


_TO_NCHW: dict[Layout, Callable[[AnyArray, int], AnyArray]] = {
    Layout.NHWC: lambda image, channels: image.transpose(0, 3, 1, 2),
    Layout.NCHW: lambda image, channels: image,
    Layout.NC4HW4: _unpacked,
}
_FROM: dict[Layout, Callable[[AnyArray], AnyArray]] = {
    Layout.NHWC: lambda image: np.ascontiguousarray(image.transpose(0, 2, 3, 1)),
    Layout.NCHW: np.ascontiguousarray,
    Layout.NC4HW4: _packed,
}
