"""Kernels of ROI_ALIGN, ROI_POOLING and HEATMAP_MAX_KEYPOINT."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from nnhal.types import DTYPES, AnyArray, OperandType, OperationType
from nnhal_driver.backends.reference.elementwise.quantization import to_output
from nnhal_driver.backends.reference.kernel import (
    Floats,
    input_as_nhwc,
    is_quantized,
    kernel,
    pad_array,
    tiles,
    to_layout,
    to_output_type,
)
from nnhal_driver.backends.reference.numerics.fixed_point import Integers, encode, rescale, to_stored
from nnhal_driver.operations.boxes import Reals, real_values
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.layers.roi import feature_map_boxes, mean_multiplier, sampling

_SAMPLE_COST = 64
"""Cost of a value of a sample, in multiply-adds."""
_FLOAT_MAX = np.finfo(np.float32).max


@dataclass(frozen=True, slots=True)
class RoiSamples:
    """Sample points along one axis, [cells, samples per cell]: between `low` and `high`, at `fraction` from `low`."""

    low: Integers
    high: Integers
    fraction: Reals

    @property
    def count(self) -> int:
        """Number of samples per cell."""
        return int(self.low.shape[1])

    def of_cells(self, cells: slice) -> "RoiSamples":
        """Return the samples of some cells."""
        return RoiSamples(self.low[cells], self.high[cells], self.fraction[cells])


@np.errstate(over="ignore", invalid="ignore")
def _sample_points(start: AnyArray, step: AnyArray, cells: int, count: int, length: int) -> RoiSamples:
    """Return `count` points in each of `cells` cells of size `step`, on a feature map of `length`, in their type."""
    width = step / step.dtype.type(count)
    centers = step * np.arange(cells, dtype=step.dtype)[:, np.newaxis] + start + width / 2
    centers = centers + width * np.arange(count, dtype=step.dtype)
    floor = np.floor(centers)
    low = _to_index(floor, length - 1)
    fraction = np.where(low == length - 1, 0, centers - floor).astype(step.dtype)
    return RoiSamples(low, np.minimum(low + 1, length - 1), fraction)


def _to_index(position: Reals, last: int) -> Integers:
    """Convert whole numbers, or NaN, to indices of at most `last`. float16 may not represent `last`."""
    return np.fmin(position.astype(np.float64), last).astype(np.int64)


def _corners(y: RoiSamples, x: RoiSamples) -> Iterator[tuple[Reals, Integers, Integers]]:
    """Yield the four cells around each sample: weights [cells, samples, cells, samples, 1], rows and columns."""
    for rows, vertical in ((y.low, 1 - y.fraction), (y.high, y.fraction)):
        for columns, horizontal in ((x.low, 1 - x.fraction), (x.high, x.fraction)):
            weights = vertical[:, :, np.newaxis, np.newaxis] * horizontal
            yield weights[..., np.newaxis], rows[:, :, np.newaxis, np.newaxis], columns


def _sum_in_cells(terms: Iterator[AnyArray]) -> AnyArray:
    """Sum terms [cells, samples, cells, samples, depth] for each output cell."""
    sums: AnyArray = reduce(add, terms).sum(axis=(1, 3))
    return sums


@np.errstate(over="ignore", invalid="ignore")
def _mean(call: OperationCall, image: AnyArray, y: RoiSamples, x: RoiSamples) -> AnyArray:
    """Return the means of one region: [output_height, output_width, depth]."""
    sums = _sum_in_cells(weights.astype(np.float32) * image[rows, columns] for weights, rows, columns in _corners(y, x))
    sums /= y.count * x.count
    return to_output_type(call, sums)


def _quantized_mean(call: OperationCall, image: AnyArray, y: RoiSamples, x: RoiSamples) -> AnyArray:
    """Return the means of stored values less their zero point, with weights in whole 255ths."""
    output = call.operand("output")
    sums = _sum_in_cells(
        _round_half_up(weights / np.float32(1 / 255)).astype(np.int64) * image[rows, columns]
        for weights, rows, columns in _corners(y, x)
    )
    scaled = rescale(sums.astype(np.int64), *encode(mean_multiplier(call, y.count * x.count)))
    return to_stored(scaled + output.zero_point, output)


@kernel(OperationType.ROI_ALIGN)
def roi_align(call: OperationCall) -> AnyArray:
    """Return means of points between the cells of the feature map."""
    image, average = input_as_nhwc(call), _mean
    if is_quantized(call, "input"):
        image, average = image.astype(np.int64) - call.operand("input").zero_point, _quantized_mean
    _, height, width, depth = image.shape
    rows, columns = call.integer("output_height"), call.integer("output_width")
    boxes = feature_map_boxes(call)
    steps, counts = sampling(call, boxes)
    out = np.zeros((len(boxes), rows, columns, depth), DTYPES[call.operand("output").type])
    for i, batch in enumerate(call.array("batch_index")):
        call.check()
        y = _sample_points(boxes[i, 1], steps[i, 1], rows, int(counts[i, 1]), height)
        x = _sample_points(boxes[i, 0], steps[i, 0], columns, int(counts[i, 0]), width)
        # a copy for each sample: large cells are made of parts
        cost = _SAMPLE_COST * y.count * x.count * depth
        for down, across in tiles(call, (rows, columns), cost):
            out[i, down, across] = average(call, image[batch], y.of_cells(down), x.of_cells(across))
    return to_layout(call, out)


@kernel(OperationType.ROI_POOLING)
def roi_pooling(call: OperationCall) -> AnyArray:
    """Return the largest value under each output cell, which is a window of whole cells of the feature map."""
    image = input_as_nhwc(call)
    _, height, width, depth = image.shape
    # one more row and column, so that a window may end after the last cell
    image = pad_array(image, ((0, 0), (0, 1), (0, 1), (0, 0)), 0)
    rows, columns = call.integer("output_height"), call.integer("output_width")
    out = np.full((len(call.array("rois")), rows, columns, depth), call.operand("input").zero_point, image.dtype)
    edges = _round_half_up(feature_map_boxes(call))
    for i, (batch, (left, top, right, bottom)) in enumerate(zip(call.array("batch_index"), edges, strict=True)):
        call.check()
        y, y_end = _cell_windows(top, bottom, rows, height)
        x, x_end = _cell_windows(left, right, columns, width)
        largest = _max_over_windows(_max_over_windows(image[batch], y, y_end, 0), x, x_end, 1)
        # NaN loses against any other value, except in the first cell of a window
        first = image[batch][y[:, np.newaxis], x]
        filled = (y < y_end)[:, np.newaxis, np.newaxis] & (x < x_end)[:, np.newaxis]
        np.copyto(out[i], np.where(np.isnan(first), first, largest), where=filled)
    return to_layout(call, out)


def _round_half_up(values: Reals) -> Reals:
    """Round values >= 0 to the nearest whole number, ties up, in their own type."""
    return np.floor(values.astype(np.float64) + 0.5).astype(values.dtype)


def _cell_windows(start: AnyArray, end: AnyArray, cells: int, length: int) -> tuple[Integers, Integers]:
    """Return the starts and ends of the windows of `cells` output cells over a region, computed in its type."""
    step = np.maximum(end - start + 1, 1) / start.dtype.type(cells)
    index = np.arange(cells, dtype=start.dtype)
    low, high = np.floor(step * index + start), np.ceil(step * (index + 1) + start)
    return _to_index(low, length), _to_index(high, length)


def _max_over_windows(image: AnyArray, starts: Integers, ends: Integers, axis: int) -> AnyArray:
    """Return the largest value of each window along an axis, ignoring NaN. It is undefined for an empty window."""
    bounds = np.stack([starts, ends], axis=1).reshape(-1)
    every_other = (slice(None),) * axis + (slice(None, None, 2),)
    largest: AnyArray = np.fmax.reduceat(image, bounds, axis=axis)[every_other]
    return largest


@kernel(OperationType.HEATMAP_MAX_KEYPOINT)
def heatmap_max_keypoint(call: OperationCall) -> Sequence[AnyArray]:
    """Return the highest point of each heatmap, refined by a quadratic fit, and its position in the box."""
    maps = real_values(call, "heatmap")
    maps = maps if call.flag("layout") else maps.transpose(0, 3, 1, 2)
    size = maps.shape[-1]
    tolerance = np.float32(1e-3 if call.operand("heatmap").type == OperandType.TENSOR_FLOAT16 else 1e-5)
    flat = np.fmax(maps.reshape(*maps.shape[:2], -1), -_FLOAT_MAX)
    row, column = np.divmod(flat.argmax(axis=-1), size)
    shift, score = _refine_peak(_neighbors(maps, row, column), flat.max(axis=-1), tolerance)
    boxes = real_values(call, "boxes")[:, np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):
        position = (np.stack([column, row], axis=-1).astype(np.float32) + shift + np.float32(0.5)) / np.float32(size)
        keypoint = position * (boxes[..., 2:] - boxes[..., :2]) + boxes[..., :2]
    return [to_output(call, "score", score), to_output(call, "keypoint", keypoint)]


def _neighbors(maps: Floats, row: Integers, column: Integers) -> Floats:
    """Return the 3 x 3 cells around one cell of each map, mirrored at its edges: [boxes, keypoints, 3, 3]."""
    size = maps.shape[-1]
    rows, columns = (
        size - 1 - np.abs(size - 1 - np.abs(index[..., np.newaxis] + np.arange(-1, 2))) for index in (row, column)
    )
    box = np.arange(len(maps)).reshape(-1, 1, 1, 1)
    keypoint = np.arange(maps.shape[1]).reshape(-1, 1, 1)
    cells: Floats = maps[box, keypoint, rows[..., :, np.newaxis], columns[..., np.newaxis, :]]
    return cells


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _refine_peak(g: Floats, highest: Floats, tolerance: np.float32) -> tuple[Floats, Floats]:
    """Return the maximum of a quadratic through 3 x 3 cells: (dx, dy) from the middle cell, and its height.

    It is the middle, of height `highest`, where the quadratic is nearly flat. The step is limited to 1.5 cells.
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
