"""Selection of boxes for BOX_WITH_NMS_LIMIT and GENERATE_PROPOSALS.

The number of selected boxes depends on all values, so the shape rules need the selection as well as the kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.operations.boxes import Floats, check_order, real_values, transform_boxes
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.suppression import Indices, argsort_descending, hard_decay, soft_decay, suppress


@dataclass(frozen=True, slots=True)
class SelectedBoxes:
    """Selection of BOX_WITH_NMS_LIMIT: for each box its decayed score, its row in the input and its class."""

    scores: Floats
    rows: Indices
    classes: Indices


@dataclass(frozen=True, slots=True)
class Proposals:
    """Selection of GENERATE_PROPOSALS: for each box its score, its corners [.., 4] and its image."""

    scores: Floats
    boxes: Floats
    images: Indices


def selected_boxes(call: OperationCall) -> SelectedBoxes:
    """Return the boxes of all images, in image order. Boxes of one image are sorted by class, then by score."""
    return call.share("selected boxes", lambda: _select_boxes(call))


def _select_boxes(call: OperationCall) -> SelectedBoxes:
    starts = np.flatnonzero(np.diff(call.array("batches"))) + 1
    images = np.split(np.arange(call.shape("scores")[0]), starts)
    return _concatenate([_best_of_image(call, rows) for rows in images])


def _concatenate(parts: Sequence[SelectedBoxes]) -> SelectedBoxes:
    return SelectedBoxes(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.classes for part in parts]),
    )


def _best_of_image(call: OperationCall, rows: Indices) -> SelectedBoxes:
    """Return the best boxes of all classes except the background, sorted by class."""
    limit = call.integer("max_num_detections")
    classes = range(1, call.shape("scores")[1])
    candidates = _concatenate([_best_of_class(call, rows, class_, limit) for class_ in classes])
    best = argsort_descending(candidates.scores)[: limit if limit >= 0 else None]
    best = best[np.argsort(candidates.classes[best], kind="stable")]
    return SelectedBoxes(candidates.scores[best], candidates.rows[best], candidates.classes[best])


def _best_of_class(call: OperationCall, rows: Indices, class_: int, limit: int) -> SelectedBoxes:
    scores = call.share("scores", lambda: real_values(call, "scores"))[rows, class_]
    boxes = call.share("roi", lambda: real_values(call, "roi"))[rows, 4 * class_ : 4 * class_ + 4]
    above = scores > call.number("score_threshold")
    decay = soft_decay(
        call.integer("nms_kernel"),
        call.number("iou_threshold"),
        call.number("sigma"),
        call.number("nms_score_threshold"),
    )
    order, decayed = suppress(boxes[above], scores[above], limit, decay, call.check)
    return SelectedBoxes(decayed, rows[above][order], np.full(len(order), class_))


def proposals(call: OperationCall) -> Proposals:
    """Return the boxes of all images, in the order in which suppression selects them.

    Raises:
        HalError: GENERAL_FAILURE: an anchor has x1 > x2 or y1 > y2.
    """
    return call.share("proposals", lambda: _select_proposals(call))


def _select_proposals(call: OperationCall) -> Proposals:
    scores, deltas, sizes = _nhwc(call, "scores"), _nhwc(call, "bbox_deltas"), real_values(call, "image_info")
    images, height, width, _ = scores.shape
    anchors = _anchor_grid(call, height, width)
    scores, deltas = scores.reshape(images, -1), deltas.reshape(images, -1, 4)
    boxes = transform_boxes(anchors, deltas, sizes[:, np.newaxis])
    selected = [_best_proposals(call, *image) for image in zip(scores, boxes, sizes, strict=True)]
    return Proposals(
        np.concatenate([row[order] for row, order in zip(scores, selected, strict=True)]),
        np.concatenate([row[order] for row, order in zip(boxes, selected, strict=True)]),
        np.repeat(np.arange(images), [len(order) for order in selected]),
    )


def _nhwc(call: OperationCall, name: str) -> Floats:
    value = real_values(call, name)
    return value.transpose(0, 2, 3, 1) if call.flag("layout") else value


@np.errstate(over="ignore", invalid="ignore")
def _anchor_grid(call: OperationCall, height: int, width: int) -> Floats:
    """Return the anchors at every cell of the feature map: [height * width * anchors, 4]."""
    rows = np.arange(height, dtype=np.float32) * np.float32(call.number("height_stride"))
    columns = np.arange(width, dtype=np.float32) * np.float32(call.number("width_stride"))
    y, x = np.meshgrid(rows, columns, indexing="ij")
    shifts = np.stack([x, y, x, y], axis=-1)
    grid: Floats = shifts[:, :, np.newaxis] + real_values(call, "anchors")
    check_order(call, "anchors", np.moveaxis(grid, 2, 0))
    return grid.reshape(-1, 4)


@np.errstate(over="ignore", invalid="ignore")
def _best_proposals(call: OperationCall, scores: Floats, boxes: Floats, size: AnyArray) -> Indices:
    """Return the indices of the selected boxes of one image. `size` is [height, width] of the image."""
    limit = call.integer("pre_nms_max")
    order = argsort_descending(scores)[:limit] if 0 < limit < len(scores) else np.arange(len(scores))
    extent = boxes[order, 2:] - boxes[order, :2]
    large = (extent > call.number("min_size")).all(axis=1)
    inside = (boxes[order, :2] + extent / 2 < size[::-1]).all(axis=1)
    order = order[large & inside]
    decay = hard_decay(call.number("iou_threshold"))
    selected, _ = suppress(boxes[order], scores[order], call.integer("post_nms_max"), decay, call.check)
    return order[selected]
