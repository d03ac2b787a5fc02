"""Layouts of images, and conversion between them.

A backend that computes in a layout of its own declares it for operands (`CompiledSubgraph.layouts`). The host converts
at the boundary to partitions with another layout, and not between partitions with the same layout.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from nnhal.errors import general_failure
from nnhal.types import AnyArray

PACK = 4
"""Channels per pack in NC4HW4."""


class Layout(Enum):
    """Row-major layout of an image with N batches, C channels, height H and width W.

    NC4HW4 is [N, ceil(C / 4), H, W, 4]. Channels from C on are zero.
    """

    NHWC = auto()
    NCHW = auto()
    NC4HW4 = auto()


@dataclass(frozen=True, slots=True)
class Relayout:
    """Layout of an operand in the model, NHWC or NCHW, and in the backend."""

    model: Layout
    own: Layout

    def to_own(self, array: AnyArray) -> AnyArray:
        """Convert from the model's layout to the backend's."""
        return convert(array, self.model, self.own)

    def own_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape in the backend's layout for a shape of rank 4 in the model's."""
        batches, *image = shape
        height, width, channels = image if self.model is Layout.NHWC else (*image[1:], image[0])
        return {
            Layout.NHWC: (batches, height, width, channels),
            Layout.NCHW: (batches, channels, height, width),
            Layout.NC4HW4: (batches, -(-channels // PACK), height, width, PACK),
        }[self.own]

    def to_model(self, array: AnyArray, channels: int) -> AnyArray:
        """Convert from the backend's layout to the model's."""
        return convert(array, self.own, self.model, channels)


def convert(array: AnyArray, source: Layout, target: Layout, channels: int = 0) -> AnyArray:
    """Return an image in another layout: a new array, or the same one if the layouts are equal.

    The number of channels is needed only if the source is NC4HW4.

    Raises:
        HalError: GENERAL_FAILURE: the rank does not fit the source's layout.
    """
    rank = 5 if source is Layout.NC4HW4 else 4
    if array.ndim != rank:
        raise general_failure(f"an image in layout {source.name} has shape {list(array.shape)}; expected rank {rank}")
    if source is target:
        return array
    return _FROM[target](_TO_NCHW[source](array, channels))


def _pack(image: AnyArray) -> AnyArray:
    batches, channels, height, width = image.shape
    packs = -(-channels // PACK)
    packed = np.zeros((batches, packs, height, width, PACK), image.dtype)
    view = packed.transpose(0, 1, 4, 2, 3)  # [N, packs, 4, H, W]
    for pack in range(packs):
        part = image[:, pack * PACK : (pack + 1) * PACK]
        view[:, pack, : part.shape[1]] = part
    return packed


def _unpack(image: AnyArray, channels: int) -> AnyArray:
    batches, packs, height, width, _ = image.shape
    if not packs * PACK - PACK < channels <= packs * PACK:
        raise general_failure(f"{packs} packs of {PACK} channels cannot hold {channels} channels")
    return image.transpose(0, 1, 4, 2, 3).reshape(batches, packs * PACK, height, width)[:, :channels]


_TO_NCHW: dict[Layout, Callable[[AnyArray, int], AnyArray]] = {
    Layout.NHWC: lambda image, channels: image.transpose(0, 3, 1, 2),
    Layout.NCHW: lambda image, channels: image,
    Layout.NC4HW4: _unpack,
}
_FROM: dict[Layout, Callable[[AnyArray], AnyArray]] = {
    Layout.NHWC: lambda image: np.ascontiguousarray(image.transpose(0, 2, 3, 1)),
    Layout.NCHW: np.ascontiguousarray,
    Layout.NC4HW4: _pack,
}
