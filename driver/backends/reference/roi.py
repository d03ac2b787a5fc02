"""Kernels of ROI_ALIGN, ROI_POOLING and HEATMAP_MAX_KEYPOINT."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from driver.backends.reference.fixed_point import RANGES, Integers, encode, rescale
from driver.backends.reference.kernel import Floats, is_quantized, kernel, laid_out, narrowed, nhwc
from driver.backends.reference.quantization import to_output
from driver.operations.boxes import Reals, reals
from driver.operations.call import Call
from driver.operations.roi import multiplier, regions, sampling
from nnhal.types import DTYPES, AnyArray, OperandType, OperationType

_FLOAT_MAX = np.finfo(np.float32).max


@dataclass(frozen=True, slots=True)
class Samples:
    """Sample points along one axis, [cells, samples in a cell]: between `low` and `high`, `fraction` past `low`."""

    low: Integers
    high: Integers
    fraction: Reals

    @property
    def count(self) -> int:
        """Samples in a cell."""
        return int(self.low.shape[1])


@np.errstate(over="ignore", invalid="ignore")
def _samples(start: AnyArray, step: AnyArray, cells: int, count: int, length: int) -> Samples:
    """`count` points in each of `cells` cells of size `step`, over a feature map so long; in their own type."""
    width = step / step.dtype.type(count)
    centres = step * np.arange(cells, dtype=step.dtype)[:, np.newaxis] + start + width / 2
    centres = centres + width * np.arange(count, dtype=step.dtype)
    floor = np.floor(centres)
    low = _cell(floor, length - 1)
    fraction = np.where(low == length - 1, 0, centres - floor).astype(step.dtype)
    return Samples(low, np.minimum(low + 1, length - 1), fraction)


def _cell(place: Reals, last: int) -> Integers:
    """A whole number, or NaN, as an index that is `last` at most. (A half float need not hold `last`.)"""
    return np.fmin(place.astype(np.float64), last).astype(np.int64)


def _corners(y: Samples, x: Samples) -> Iterator[tuple[Reals, Integers, Integers]]:
    """The four cells around each sample: weights [cells, samples, cells, samples, 1], rows and columns."""
    for rows, vertical in ((y.low, 1 - y.fraction), (y.high, y.fraction)):
        for columns, horizontal in ((x.low, 1 - x.fraction), (x.high, x.fraction)):
            weights = vertical[:, :, np.newaxis, np.newaxis] * horizontal
            yield weights[..., np.newaxis], rows[:, :, np.newaxis, np.newaxis], columns


def _in_cells(terms: Iterator[AnyArray]) -> AnyArray:
    """Terms [cells, samples, cells, samples, depth] added up for each output cell."""
    sums: AnyArray = reduce(add, terms).sum(axis=(1, 3))
    return sums


@np.errstate(over="ignore", invalid="ignore")
def _mean(call: Call, image: AnyArray, y: Samples, x: Samples) -> AnyArray:
    """[output_height, output_width, depth] of one region."""
    sums = _in_cells(weights.astype(np.float32) * image[rows, columns] for weights, rows, columns in _corners(y, x))
    sums /= y.count * x.count
    return narrowed(call, sums)


def _quantized_mean(call: Call, image: AnyArray, y: Samples, x: Samples) -> AnyArray:
    """The same of stored values less their zero point, with weights in whole 255ths."""
    output = call.operand("output")
    sums = _in_cells(_in_255ths(weights) * image[rows, columns] for weights, rows, columns in _corners(y, x))
    scaled = rescale(sums.astype(np.int64), *encode(multiplier(call, y.count * x.count))) + output.zero_point
    return np.clip(scaled, *RANGES[OperandType(output.type)]).astype(DTYPES[output.type])


def _in_255ths(weights: Reals) -> Integers:
    """Nearest whole numbers, ties up."""
    return np.floor((weights / np.float32(1 / 255)).astype(np.float64) + 0.5).astype(np.int64)


@kernel(OperationType.ROI_ALIGN)
def roi_align(call: Call) -> AnyArray:
    """The mean of points between the cells of the feature map."""
    image, average = nhwc(call), _mean
    if is_quantized(call, "input"):
        image, average = image.astype(np.int64) - call.operand("input").zero_point, _quantized_mean
    _, height, width, depth = image.shape
    rows, columns = call.integer("output_height"), call.integer("output_width")
    boxes = regions(call)
    steps, counts = sampling(call, boxes)
    out = np.zeros((len(boxes), rows, columns, depth), DTYPES[call.operand("output").type])
    for i, batch in enumerate(call.array("batch_index")):
        y = _samples(boxes[i, 1], steps[i, 1], rows, int(counts[i, 1]), height)
        x = _samples(boxes[i, 0], steps[i, 0], columns, int(counts[i, 0]), width)
        out[i] = average(call, image[batch], y, x)
    return laid_out(call, out)


@kernel(OperationType.ROI_POOLING)
def roi_pooling(call: Call) -> AnyArray:
    """The largest value under each output cell, which is a window of whole cells of the feature map."""
    image = nhwc(call)
    _, height, width, depth = image.shape
    # one more row and column, so that a window may end behind the last
    image = np.pad(image, ((0, 0), (0, 1), (0, 1), (0, 0)))
    rows, columns = call.integer("output_height"), call.integer("output_width")
    out = np.full((len(call.array("rois")), rows, columns, depth), call.operand("input").zero_point, image.dtype)
    edges = _rounded(regions(call))
    for i, (batch, (left, top, right, bottom)) in enumerate(zip(call.array("batch_index"), edges, strict=True)):
        y, x = _windows(top, bottom, rows, height), _windows(left, right, columns, width)
        largest = _folded(_folded(image[batch], y, 0), x, 1)
        # NaN loses against any other value, but not in the first place
        first = image[batch][y.start[:, np.newaxis], x.start]
        filled = (y.start < y.end)[:, np.newaxis, np.newaxis] & (x.start < x.end)[:, np.newaxis]
        np.copyto(out[i], np.where(np.isnan(first), first, largest), where=filled)
    return laid_out(call, out)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along one axis, which may overlap: from `start` up to but excluding `end`."""

    start: Integers
    end: Integers


def _rounded(values: Reals) -> Reals:
    """Nearest whole numbers, ties away from zero, of values >= 0 in their own type."""
    return np.floor(values.astype(np.float64) + 0.5).astype(values.dtype)


def _windows(start: AnyArray, end: AnyArray, cells: int, length: int) -> Windows:
    """The windows of `cells` cells over a region of a feature map of so many cells; in the type of the region."""
    step = np.maximum(end - start + 1, 1) / start.dtype.type(cells)
    index = np.arange(cells, dtype=start.dtype)
    low, high = np.floor(step * index + start), np.ceil(step * (index + 1) + start)
    return Windows(_cell(low, length), _cell(high, length))


def _folded(image: AnyArray, windows: Windows, axis: int) -> AnyArray:
    """The largest value of each window along an axis, without NaN; that of an empty window is of no use."""
    bounds = np.stack([windows.start, windows.end], axis=1).reshape(-1)
    every_other = (slice(None),) * axis + (slice(None, None, 2),)
    largest: AnyArray = np.fmax.reduceat(image, bounds, axis=axis)[every_other]
    return largest


@kernel(OperationType.HEATMAP_MAX_KEYPOINT)
def heatmap_max_keypoint(call: Call) -> Sequence[AnyArray]:
    """The highest point of each heatmap, refined by a quadratic fit, and where it lies in its box."""
    maps = reals(call, "heatmap")
    maps = maps if call.flag("layout") else maps.transpose(0, 3, 1, 2)
    size = maps.shape[-1]
    tolerance = np.float32(1e-3 if call.operand("heatmap").type == OperandType.TENSOR_FLOAT16 else 1e-5)
    flat = np.fmax(maps.reshape(*maps.shape[:2], -1), -_FLOAT_MAX)
    row, column = np.divmod(flat.argmax(axis=-1), size)
    shift, score = _refined(_neighbours(maps, row, column), flat.max(axis=-1), tolerance)
    boxes = reals(call, "boxes")[:, np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):
        place = (np.stack([column, row], axis=-1).astype(np.float32) + shift + np.float32(0.5)) / np.float32(size)
        keypoint = place * (boxes[..., 2:] - boxes[..., :2]) + boxes[..., :2]
    return [to_output(call, "score", score), to_output(call, "keypoint", keypoint)]


def _neighbours(maps: Floats, row: Integers, column: Integers) -> Floats:
    """The 3 x 3 cells around one cell of each map, mirrored at its edges: [boxes, keypoints, 3, 3]."""
    size = maps.shape[-1]
    rows, columns = (
        size - 1 - np.abs(size - 1 - np.abs(place[..., np.newaxis] + np.arange(-1, 2))) for place in (row, column)
    )
    box = np.arange(len(maps)).reshape(-1, 1, 1, 1)
    keypoint = np.arange(maps.shape[1]).reshape(-1, 1, 1)
    cells: Floats = maps[box, keypoint, rows[..., :, np.newaxis], columns[..., np.newaxis, :]]
    return cells


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _refined(g: Floats, highest: Floats, tolerance: np.float32) -> tuple[Floats, Floats]:
    """Where a quadratic through 3 x 3 cells has its maximum, as (dx, dy) from their middle, and how high it is.

    It is the middle, of height `highest`, where the quadratic is all but flat. No step is longer than 1.5 cells.
    """
    middle = g[..., 1, 1]
    b0, b1 = -(g[..., 1, 2] - g[..., 1, 0]) / 2, -(g[..., 2, 1] - g[..., 0, 1]) / 2
    a00 = g[..., 1, 0] - 2 * middle + g[..., 1, 2]
    a11 = g[..., 0, 1] - 2 * middle + g[..., 2, 1]
    a01 = (g[..., 2, 2] - g[..., 2, 0] - g[..., 0, 2] + g[..., 0, 0]) / 4
    determinant = a00 * a11 - a01 * a01
    flat = np.abs(determinant) < tolerance + tolerance * (a00 * a11)
    dx, dy = (a11 * b0 - a01 * b1) / determinant, (a00 * b1 - a01 * b0) / determinant
    longest = np.maximum(np.abs(dx), np.abs(dy))
    shortened = np.where(longest > 1.5, np.float32(1.5) / longest, np.float32(1))
    dx, dy = dx * shortened, dy * shortened
    height = middle - b0 * dx - b1 * dy + ((a00 * dx + a01 * dy) * dx + (a01 * dx + a11 * dy) * dy) / 2
    shift = np.where(flat[..., np.newaxis], np.float32(0), np.stack([dx, dy], axis=-1))
    return shift, np.where(flat, highest, height)
