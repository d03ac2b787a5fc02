"""Selection of boxes for BOX_WITH_NMS_LIMIT and GENERATE_PROPOSALS, by non-maximum suppression.

Suppression selects, among overlapping boxes, the one with the highest score.

The number of selected boxes depends on all values, so the shape rules need the selection as well as the kernels.
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.operations.boxes import Floats, Mask, check_order, real_values, transform_boxes
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.sorting import Indices, last_sorted

Decay = Callable[[Floats, Floats], tuple[Floats, Mask]]
"""Maps the IoU of boxes with the box just selected, and their scores, to new scores and a mask of boxes to keep."""

NMS_KERNELS = 3
"""Number of values of nms_kernel: 0 hard, 1 linear, 2 gaussian."""


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def iou(box: Floats, boxes: Floats) -> Floats:
    """Return the intersection over union of one box with each of `boxes` [n, 4]. It is NaN if neither has an area."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    common = np.maximum(high - low, 0).prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    overlap: Floats = common / ((box[2:] - box[:2]).prod() + areas - common)
    return overlap


def hard_decay(threshold: float) -> Decay:
    """Return a decay that drops boxes whose overlap is `threshold` or more."""
    return lambda overlap, scores: (scores, ~(overlap >= threshold))


def soft_decay(kernel: int, threshold: float, sigma: float, lowest: float) -> Decay:
    """Return a decay that multiplies scores by a function of the overlap, and drops boxes scored below `lowest`."""

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def decay(overlap: Floats, scores: Floats) -> tuple[Floats, Mask]:
        if kernel == 2:
            factor = np.exp(-overlap * overlap / np.float32(sigma))
        else:
            factor = np.where(overlap < threshold, np.float32(1), 1 - overlap if kernel == 1 else np.float32(0))
        decayed = scores * factor
        return decayed, ~(decayed < lowest)

    return decay


def suppress(
    boxes: Floats, scores: Floats, limit: int, decay: Decay, check: Callable[[], None]
) -> tuple[Indices, Floats]:
    """Select the pending box with the highest score, decay the scores of the others, and repeat.

    Args:
        boxes: [n, 4].
        scores: [n]; NaN counts as the lowest score.
        limit: maximum number of boxes to select; negative means unlimited.
        decay: decay of the scores of the other boxes.
        check: called before each selection; raises to end it.

    Returns:
        The indices of the selected boxes, in order of selection, and their decayed scores.
    """
    scores = scores.copy()
    pending = np.arange(len(scores))
    selected: list[int] = []
    check()
    while len(pending) and len(selected) != limit:
        check()
        best = int(np.fmax(scores[pending], -np.inf).argmax())
        # the order of the remaining boxes decides between equal scores
        pending[[0, best]] = pending[[best, 0]]
        front, rest = pending[0], pending[1:]
        selected.append(int(front))
        scores[rest], keep = decay(iou(boxes[front], boxes[rest]), scores[rest])
        pending = _remove_suppressed(rest, keep)
    order = np.array(selected, np.int64)
    return order, scores[order]


def _remove_suppressed(pending: Indices, keep: Mask) -> Indices:
    """Return the indices to keep. From the front, each gap is filled with the last remaining index."""
    count = int(np.count_nonzero(keep))
    remaining = pending[:count].copy()
    remaining[~keep[:count]] = pending[count:][keep[count:]][::-1]
    return remaining


def argsort_descending(scores: Floats, check: Callable[[], None]) -> Indices:
    """Return the indices that sort scores, highest first. Equal scores keep their order, NaN comes last."""
    rows = np.asarray(-scores).reshape(prod(scores.shape[:-1]), scores.shape[-1])
    return last_sorted(rows, rows.shape[1], check).reshape(scores.shape)


# ---- BOX_WITH_NMS_LIMIT ---------------------------------------------------------------------------------


class SelectedBoxes(NamedTuple):
    """Selection of BOX_WITH_NMS_LIMIT: for each box its decayed score, its row in the input and its class."""

    scores: Floats
    rows: Indices
    classes: Indices


def selected_boxes(call: OperationCall) -> SelectedBoxes:
    """Return the boxes of all images, in image order. Boxes of one image are sorted by class, then by score."""
    return call.share("selected boxes", lambda: _select_boxes(call))


def _select_boxes(call: OperationCall) -> SelectedBoxes:
    starts = np.flatnonzero(np.diff(call.array("batches"))) + 1
    images = np.split(np.arange(call.shape("scores")[0]), starts)
    return _concatenate([_best_of_image(call, rows) for rows in images])


def _concatenate(parts: list[SelectedBoxes]) -> SelectedBoxes:
    return SelectedBoxes(*map(np.concatenate, zip(*parts, strict=True)))


def _best_of_image(call: OperationCall, rows: Indices) -> SelectedBoxes:
    """Return the best boxes of all classes except the background, sorted by class."""
    limit = call.integer("max_num_detections")
    classes = range(1, call.shape("scores")[1])
    candidates = _concatenate([_best_of_class(call, rows, class_, limit) for class_ in classes])
    best = argsort_descending(candidates.scores, call.check)[: limit if limit >= 0 else None]
    best = best[np.argsort(candidates.classes[best], kind="stable")]
    return SelectedBoxes(candidates.scores[best], candidates.rows[best], candidates.classes[best])


def _best_of_class(call: OperationCall, rows: Indices, class_: int, limit: int) -> SelectedBoxes:
    scores = call.share("scores", lambda: real_values(call, "scores"))[rows, class_]
    boxes = call.share("roi", lambda: real_values(call, "roi"))[rows, 4 * class_ : 4 * class_ + 4]
    above = scores > call.number("score_threshold")
    numbers = (call.number(name) for name in ("iou_threshold", "sigma", "nms_score_threshold"))
    decay = soft_decay(call.integer("nms_kernel"), *numbers)
    order, decayed = suppress(boxes[above], scores[above], limit, decay, call.check)
    return SelectedBoxes(decayed, rows[above][order], np.full(len(order), class_))


# ---- GENERATE_PROPOSALS ---------------------------------------------------------------------------------


class Proposals(NamedTuple):
    """Selection of GENERATE_PROPOSALS: for each box its score, its corners [.., 4] and its image."""

    scores: Floats
    boxes: Floats
    images: Indices


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
    best_scores, best_boxes = (
        np.concatenate([row[order] for row, order in zip(rows, selected, strict=True)]) for rows in (scores, boxes)
    )
    return Proposals(best_scores, best_boxes, np.repeat(np.arange(images), [len(order) for order in selected]))


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
    order = argsort_descending(scores, call.check)[:limit] if 0 < limit < len(scores) else np.arange(len(scores))
    corners = np.take(boxes, order, axis=0)
    extent = corners[:, 2:] - corners[:, :2]
    large = (extent > call.number("min_size")).all(axis=1)
    inside = (corners[:, :2] + extent / 2 < size[::-1]).all(axis=1)
    kept = np.flatnonzero(large & inside)
    order, corners = order[kept], np.take(corners, kept, axis=0)
    decay = hard_decay(call.number("iou_threshold"))
    selected, _ = suppress(corners, np.take(scores, order, axis=0), call.integer("post_nms_max"), decay, call.check)
    return order[selected]
