"""Non-maximum suppression: selects, among overlapping boxes, the one with the highest score."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal_driver.operations.boxes import Floats, Mask

Indices: TypeAlias = NDArray[np.int64]

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


def argsort_descending(scores: Floats) -> Indices:
    """Return the indices that sort scores, highest first. Equal scores keep their order, NaN comes last."""
    return np.argsort(-scores, kind="stable")
