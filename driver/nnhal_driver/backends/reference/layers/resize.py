"""Kernels of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnhal.types import DTYPES, AnyArray, OperandType, OperationType
from nnhal_driver.backends.reference.kernel import Floats, input_as_nhwc, kernel, to_layout, to_output_type
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.layers.resize import output_size

_BITS = 10
"""Fraction bits of positions in the integer arithmetic of the signed 8-bit type."""


@dataclass(frozen=True, slots=True)
class ResizeAxis:
    """One axis that is resized from `old` to `new` cells."""

    old: int
    new: int
    align_corners: bool
    half_pixel_centers: bool

    @property
    def lengths(self) -> tuple[int, int]:
        """Lengths whose ratio is the step between samples."""
        return (self.old - 1, self.new - 1) if self.align_corners and self.new > 1 else (self.old, self.new)


Samples = tuple[NDArray[np.intp], NDArray[np.intp], AnyArray]
"""The two input cells around each output cell, the lower one first, and the weight of the higher one."""


def _axes(call: OperationCall, image: AnyArray) -> tuple[ResizeAxis, ResizeAxis]:
    flags = call.flag("align_corners"), call.flag("half_pixel_centers")
    height, width = image.shape[1:3]
    return ResizeAxis(height, output_size(call, "height", height), *flags), ResizeAxis(
        width, output_size(call, "width", width), *flags
    )


@kernel(OperationType.RESIZE_BILINEAR)
def resize_bilinear(call: OperationCall) -> AnyArray:
    """Return means of the four nearest cells, weighted by their distances."""
    image = input_as_nhwc(call)
    rows, columns = _axes(call, image)
    type_ = call.operand("output").type
    if type_ == OperandType.TENSOR_QUANT8_ASYMM_SIGNED:
        total = _blend(image.astype(np.int64), _integer_samples(rows), _integer_samples(columns), 1 << _BITS)
        half = 1 << (2 * _BITS - 1)
        rounded = np.sign(total) * ((np.abs(total) + half) >> (2 * _BITS))
        return to_layout(call, rounded.astype(DTYPES[type_]))
    out = _blend(image.astype(np.float32, copy=False), _samples(rows), _samples(columns), 1)
    if type_ == OperandType.TENSOR_QUANT8_ASYMM:
        return to_layout(call, (out + np.float32(0.5)).astype(DTYPES[type_]))
    return to_layout(call, to_output_type(call, out))


def _samples(axis: ResizeAxis) -> Samples:
    """Return samples in float32. A negative position takes the first cell twice, so that its weight cancels out."""
    old, new = axis.lengths
    step = np.float32(old) / np.float32(new)
    index = np.arange(axis.new, dtype=np.float32)
    half = np.float32(0.5)
    position = (index + half) * step - half if axis.half_pixel_centers else index * step
    low = np.clip(np.floor(position), 0, axis.old - 1)
    high = np.clip(np.ceil(position), 0, axis.old - 1)
    return low.astype(np.intp), high.astype(np.intp), (position - low).astype(np.float32)


def _integer_samples(axis: ResizeAxis) -> Samples:
    """Return samples in integers with `_BITS` fraction bits."""
    old, new = axis.lengths
    step = ((old << _BITS) + new // 2) // new
    position = np.arange(axis.new, dtype=np.int64) * step
    if axis.half_pixel_centers:
        position += step // 2 - (1 << (_BITS - 1))
    low = np.clip(position >> _BITS, 0, axis.old - 1)
    high = np.clip((position + (1 << _BITS) - 1) >> _BITS, 0, axis.old - 1)
    return low, high, position - (low << _BITS)


def _blend(image: AnyArray, rows: Samples, columns: Samples, one: int) -> AnyArray:
    """Sum four cells times their weights, in the order of the operation file. `one` is the sum of both weights."""
    (top, bottom, down), (left, right, across) = rows, columns
    down, across = down[:, np.newaxis, np.newaxis], across[:, np.newaxis]
    upper, lower = np.take(image, top, axis=1), np.take(image, bottom, axis=1)
    out: AnyArray = np.take(upper, left, axis=2) * (one - down) * (one - across)
    out += np.take(lower, left, axis=2) * down * (one - across)
    out += np.take(upper, right, axis=2) * (one - down) * across
    out += np.take(lower, right, axis=2) * down * across
    return out


@kernel(OperationType.RESIZE_NEAREST_NEIGHBOR)
def resize_nearest_neighbor(call: OperationCall) -> AnyArray:
    """Copy the nearest cells."""
    image = input_as_nhwc(call)
    rows, columns = _axes(call, image)
    return to_layout(call, np.take(np.take(image, _nearest_cells(rows), axis=1), _nearest_cells(columns), axis=2))


def _nearest_cells(axis: ResizeAxis) -> NDArray[np.intp]:
    """Return the input cell of each output cell, computed in float32."""
    old, new = axis.lengths
    index = np.arange(axis.new, dtype=np.float32)
    if axis.half_pixel_centers:
        index += np.float32(0.5)
    position: Floats = index * (np.float32(old) / np.float32(new))
    cell = np.floor(position)
    if axis.align_corners:
        cell += position - cell >= 0.5
    return np.minimum(cell, axis.old - 1).astype(np.intp)
