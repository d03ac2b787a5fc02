"""Shapes of ROI_ALIGN, ROI_POOLING and HEATMAP_MAX_KEYPOINT."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from nnhal.types import OperationType
from nnhal_driver.operations.boxes import COORDINATE_SCALE, Reals, check_coordinates, check_order, check_rows
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.geometry import image_shape, shape_in_layout
from nnhal_driver.operations.multiply_adds import STEP, multiply_adds
from nnhal_driver.operations.shape import require_shape, shape_rule

MAX_SAMPLING_RATIO = 256
"""Maximum number of samples along one axis of an output cell. They cost the device time and memory."""


def box_coordinates(call: OperationCall, name: str) -> Reals:
    """Return boxes [boxes, 4] in their float type. Quantized boxes are converted to float32."""
    stored = call.array(name)
    return stored if stored.dtype.kind == "f" else stored.astype(np.float32) * np.float32(COORDINATE_SCALE)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def feature_map_boxes(call: OperationCall) -> Reals:
    """Return the boxes in cells of the feature map, computed in their own type: [boxes, 4]."""
    image = box_coordinates(call, "rois")
    inverse = 1 / np.array([call.number("width_ratio"), call.number("height_ratio")] * 2, image.dtype)
    return image * inverse


def sampling(call: OperationCall, cells: Reals) -> tuple[Reals, NDArray[np.int64]]:
    """Return the size of an output cell and its number of samples, for each box of ROI_ALIGN as [boxes, (x, y)]."""
    sizes = np.maximum(cells[:, 2:] - cells[:, :2], 1)
    steps = sizes / np.array([call.integer("output_width"), call.integer("output_height")], sizes.dtype)
    ratios = np.array([call.integer("width_sampling_ratio"), call.integer("height_sampling_ratio")])
    return steps, np.where(ratios > 0, ratios, np.ceil(steps).astype(np.int64))


def mean_multiplier(call: OperationCall, samples: int) -> float:
    """Return input scale / 255 / output scale / samples, in float32."""
    scale = np.float32(call.operand("input").scale) * np.float32(1 / 255)
    return float(scale / np.float32(call.operand("output").scale) / np.float32(samples))


def _check_regions(call: OperationCall) -> Shape:
    """Return the shape of the output, NHWC, after checking the boxes of ROI_ALIGN or ROI_POOLING."""
    batches, height, width, channels = image_shape(call)
    call.require(batches > 0, "input has no batches")
    count = call.shape("rois")[:1]
    require_shape(call, "rois", (*count, 4))
    require_shape(call, "batch_index", count)
    check_coordinates(call, "rois")
    for name in ("output_height", "output_width", "height_ratio", "width_ratio"):
        call.require(call.number(name) > 0, f"{name} is {call.number(name):g}; it must be > 0")
    index, image, cells = call.array("batch_index"), box_coordinates(call, "rois"), feature_map_boxes(call)
    check_rows(call, "batch_index", (index >= 0) & (index < batches), f"it must be in 0..{batches - 1}")
    check_rows(call, "rois", image >= 0, "no coordinate may be negative")
    check_order(call, "rois", image)
    inside = cells <= np.array([width, height] * 2)
    check_rows(call, "rois", inside, f"it leaves the feature map of {width} x {height}")
    return (*count, call.integer("output_height"), call.integer("output_width"), channels)


@shape_rule(OperationType.ROI_ALIGN)
def roi_align(call: OperationCall) -> list[Shape]:
    """Return [num_rois, output_height, output_width, depth]."""
    shape = _check_regions(call)
    for name in ("height_sampling_ratio", "width_sampling_ratio"):
        ratio = call.integer(name)
        call.require(ratio >= 0, f"{name} is {ratio}; it must be >= 0")
        if ratio > MAX_SAMPLING_RATIO:
            raise call.failure(f"{name} is {ratio}; this device takes at most {MAX_SAMPLING_RATIO}", "")
    if call.operand("input").scale != 0:
        counts = sampling(call, feature_map_boxes(call))[1].prod(axis=1)
        if counts.size:
            scale = mean_multiplier(call, int(counts.min()))
            call.require(scale < 1, f"input scale / 255 / output scale / samples is {scale:g}; it must be below 1")
    return [shape_in_layout(call, shape)]


@shape_rule(OperationType.ROI_POOLING, empty=False, requantizes=False)
def roi_pooling(call: OperationCall) -> list[Shape]:
    """Return [num_rois, output_height, output_width, depth]."""
    return [shape_in_layout(call, _check_regions(call))]


@shape_rule(OperationType.HEATMAP_MAX_KEYPOINT, empty=False)
def heatmap_max_keypoint(call: OperationCall) -> list[Shape]:
    """Return [num_boxes, num_keypoints] and [num_boxes, num_keypoints, 2]."""
    count, height, width, keypoints = image_shape(call, "heatmap")
    call.require(height == width >= 2, f"heatmap is {height} x {width}; it must be square and 2 x 2 or more")
    require_shape(call, "boxes", (count, 4))
    check_coordinates(call, "boxes", output="keypoint")
    check_order(call, "boxes", box_coordinates(call, "boxes"))
    return [(count, keypoints), (count, keypoints, 2)]


@multiply_adds(OperationType.ROI_ALIGN, of=("input", "output", "height_sampling_ratio", "width_sampling_ratio"))
def sample_work(image: Shape, output: Shape, *ratios: int) -> int:
    """Count the samples of each cell. Without a ratio, all cells of a region are at most one for each pixel."""
    samples = prod(ratios) if min(ratios) > 0 else prod(image[1:])
    return output[0] * STEP + 2**5 * prod(output[:1] if min(ratios) == 0 else output) * samples


@multiply_adds(OperationType.ROI_POOLING, of=("input", "rois"))
def region_work(image: Shape, regions: Shape) -> int:
    """Count the image once for each region."""
    return regions[0] * (STEP + 4 * prod(image[1:]))
