"""Which boxes BOX_WITH_NMS_LIMIT and GENERATE_PROPOSALS select.

How many they are depends on all values, so that the shape rules need them as much as the kernels do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driver.operations.boxes import Floats, check_order, reals, transformed
from driver.operations.call import Call
from driver.operations.suppression import Indices, descending, hard, soft, suppress
from nnhal.types import AnyArray


@dataclass(frozen=True, slots=True)
class Survivors:
    """What BOX_WITH_NMS_LIMIT selects: for each box its decayed score, its row in the input and its class."""

    scores: Floats
    rows: Indices
    classes: Indices


@dataclass(frozen=True, slots=True)
class Proposals:
    """What GENERATE_PROPOSALS selects: for each box its score, its corners [.., 4] and its image."""

    scores: Floats
    boxes: Floats
    images: Indices


def survivors(call: Call) -> Survivors:
    """The boxes of all images, in the order of the input; those of one image by class, then by score."""
    return call.shared("survivors", lambda: _survivors(call))


def _survivors(call: Call) -> Survivors:
    starts = np.flatnonzero(np.diff(call.array("batches"))) + 1
    images = np.split(np.arange(call.shape("scores")[0]), starts)
    return _joined([_best_of_image(call, rows) for rows in images])


def _joined(parts: Sequence[Survivors]) -> Survivors:
    return Survivors(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.classes for part in parts]),
    )


def _best_of_image(call: Call, rows: Indices) -> Survivors:
    """The best of all classes but the background, by class."""
    limit = call.integer("max_num_detections")
    classes = range(1, call.shape("scores")[1])
    everything = _joined([_best_of_class(call, rows, class_, limit) for class_ in classes])
    best = descending(everything.scores)[: limit if limit >= 0 else None]
    best = best[np.argsort(everything.classes[best], kind="stable")]
    return Survivors(everything.scores[best], everything.rows[best], everything.classes[best])


def _best_of_class(call: Call, rows: Indices, class_: int, limit: int) -> Survivors:
    scores = call.shared("scores", lambda: reals(call, "scores"))[rows, class_]
    boxes = call.shared("roi", lambda: reals(call, "roi"))[rows, 4 * class_ : 4 * class_ + 4]
    above = scores > call.number("score_threshold")
    decay = soft(
        call.integer("nms_kernel"),
        call.number("iou_threshold"),
        call.number("sigma"),
        call.number("nms_score_threshold"),
    )
    order, decayed = suppress(boxes[above], scores[above], limit, decay)
    return Survivors(decayed, rows[above][order], np.full(len(order), class_))


def proposals(call: Call) -> Proposals:
    """The boxes of all images, in the order in which suppression takes them.

    Raises:
        HalError: GENERAL_FAILURE: an anchor has x1 > x2 or y1 > y2.
    """
    return call.shared("proposals", lambda: _proposals(call))


def _proposals(call: Call) -> Proposals:
    scores, deltas, sizes = _nhwc(call, "scores"), _nhwc(call, "bbox_deltas"), reals(call, "image_info")
    images, height, width, _ = scores.shape
    anchors = _spread(call, height, width)
    scores, deltas = scores.reshape(images, -1), deltas.reshape(images, -1, 4)
    boxes = transformed(anchors, deltas, sizes[:, np.newaxis])
    chosen = [_best_proposals(call, *one) for one in zip(scores, boxes, sizes, strict=True)]
    return Proposals(
        np.concatenate([row[order] for row, order in zip(scores, chosen, strict=True)]),
        np.concatenate([row[order] for row, order in zip(boxes, chosen, strict=True)]),
        np.repeat(np.arange(images), [len(order) for order in chosen]),
    )


def _nhwc(call: Call, name: str) -> Floats:
    value = reals(call, name)
    return value.transpose(0, 2, 3, 1) if call.flag("layout") else value


@np.errstate(over="ignore", invalid="ignore")
def _spread(call: Call, height: int, width: int) -> Floats:
    """The anchors at every cell of the feature map: [height * width * anchors, 4]."""
    rows = np.arange(height, dtype=np.float32) * np.float32(call.number("height_stride"))
    columns = np.arange(width, dtype=np.float32) * np.float32(call.number("width_stride"))
    y, x = np.meshgrid(rows, columns, indexing="ij")
    shifts = np.stack([x, y, x, y], axis=-1)
    spread: Floats = shifts[:, :, np.newaxis] + reals(call, "anchors")
    check_order(call, "anchors", np.moveaxis(spread, 2, 0))
    return spread.reshape(-1, 4)


@np.errstate(over="ignore", invalid="ignore")
def _best_proposals(call: Call, scores: Floats, boxes: Floats, size: AnyArray) -> Indices:
    """Which boxes of one image stay, of `size` height and width."""
    most = call.integer("pre_nms_max")
    order = descending(scores)[:most] if 0 < most < len(scores) else np.arange(len(scores))
    extent = boxes[order, 2:] - boxes[order, :2]
    large = (extent > call.number("min_size")).all(axis=1)
    inside = (boxes[order, :2] + extent / 2 < size[::-1]).all(axis=1)
    order = order[large & inside]
    taken, _ = suppress(boxes[order], scores[order], call.integer("post_nms_max"), hard(call.number("iou_threshold")))
    return order[taken]
