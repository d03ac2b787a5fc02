"""Kernels of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driver.backends.reference.kernel import Floats, kernel, laid_out, narrowed, nhwc
from driver.operations.call import Call
from driver.operations.resize import new_size
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType

_BITS = 10
"""Fraction bits of positions in the integer arithmetic of the signed 8-bit type."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis, from `old` to `new` cells."""

    old: int
    new: int
    align_corners: bool
    half_pixel_centers: bool

    @property
    def lengths(self) -> tuple[int, int]:
        """Lengths whose ratio is the step."""
        return (self.old - 1, self.new - 1) if self.align_corners and self.new > 1 else (self.old, self.new)


@dataclass(frozen=True, slots=True)
class Samples:
    """For each output cell the two input cells around it, and the weight of the higher one."""

    low: NDArray[np.intp]
    high: NDArray[np.intp]
    weight: AnyArray


def _axes(call: Call, image: AnyArray) -> tuple[Axis, Axis]:
    flags = call.flag("align_corners"), call.flag("half_pixel_centers")
    height, width = image.shape[1:3]
    return Axis(height, new_size(call, "height", height), *flags), Axis(width, new_size(call, "width", width), *flags)


@kernel(OperationType.RESIZE_BILINEAR)
def resize_bilinear(call: Call) -> AnyArray:
    """The four nearest cells, weighted by their distances."""
    image = nhwc(call)
    rows, columns = _axes(call, image)
    type_ = call.operand("output").type
    if type_ == OperandType.TENSOR_QUANT8_ASYMM_SIGNED:
        total = _blended(image.astype(np.int64), _integer_samples(rows), _integer_samples(columns), 1 << _BITS)
        half = 1 << (2 * _BITS - 1)
        rounded = np.sign(total) * ((np.abs(total) + half) >> (2 * _BITS))
        return laid_out(call, rounded.astype(DTYPES[type_]))
    out = _blended(image.astype(np.float32, copy=False), _samples(rows), _samples(columns), 1)
    if type_ == OperandType.TENSOR_QUANT8_ASYMM:
        return laid_out(call, (out + np.float32(0.5)).astype(DTYPES[type_]))
    return laid_out(call, narrowed(call, out))


def _samples(axis: Axis) -> Samples:
    """In float32. A negative position takes the first cell twice, so that its weight cancels out."""
    old, new = axis.lengths
    step = np.float32(old) / np.float32(new)
    index = np.arange(axis.new, dtype=np.float32)
    half = np.float32(0.5)
    position = (index + half) * step - half if axis.half_pixel_centers else index * step
    low = np.clip(np.floor(position), 0, axis.old - 1)
    high = np.clip(np.ceil(position), 0, axis.old - 1)
    return Samples(low.astype(np.intp), high.astype(np.intp), (position - low).astype(np.float32))


def _integer_samples(axis: Axis) -> Samples:
    """In integers with `_BITS` fraction bits."""
    old, new = axis.lengths
    step = ((old << _BITS) + new // 2) // new
    position = np.arange(axis.new, dtype=np.int64) * step
    if axis.half_pixel_centers:
        position += step // 2 - (1 << (_BITS - 1))
    low = np.clip(position >> _BITS, 0, axis.old - 1)
    high = np.clip((position + (1 << _BITS) - 1) >> _BITS, 0, axis.old - 1)
    return Samples(low, high, position - (low << _BITS))


def _blended(image: AnyArray, rows: Samples, columns: Samples, one: int) -> AnyArray:
    """Sum of four cells times their weights, in the order of the operation's file. `one`: what both weights make."""
    down = rows.weight[:, np.newaxis, np.newaxis]
    right = columns.weight[:, np.newaxis]
    upper, lower = image[:, rows.low], image[:, rows.high]
    out: AnyArray = upper[:, :, columns.low] * (one - down) * (one - right)
    out += lower[:, :, columns.low] * down * (one - right)
    out += upper[:, :, columns.high] * (one - down) * right
    out += lower[:, :, columns.high] * down * right
    return out


@kernel(OperationType.RESIZE_NEAREST_NEIGHBOR)
def resize_nearest_neighbor(call: Call) -> AnyArray:
    """Copies of the nearest cells."""
    image = nhwc(call)
    rows, columns = _axes(call, image)
    return laid_out(call, image[:, _nearest(rows)][:, :, _nearest(columns)])


def _nearest(axis: Axis) -> NDArray[np.intp]:
    """The input cell of each output cell, in float32."""
    old, new = axis.lengths
    index = np.arange(axis.new, dtype=np.float32)
    if axis.half_pixel_centers:
        index += np.float32(0.5)
    position: Floats = index * (np.float32(old) / np.float32(new))
    cell = np.floor(position)
    if axis.align_corners:
        cell += position - cell >= 0.5
    return np.minimum(cell, axis.old - 1).astype(np.intp)
