"""Non-maximum suppression: of boxes that overlap, the one with the highest score is taken."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from driver.operations.boxes import Floats, Mask

Indices: TypeAlias = NDArray[np.int64]

Decay = Callable[[Floats, Floats], tuple[Floats, Mask]]
"""From the IoU of boxes with the one just taken, and their scores: their new scores, and which of them stay."""

SOFT_KERNELS = 3
"""nms_kernel is below it: 0 hard, 1 linear, 2 gaussian."""


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def iou(box: Floats, boxes: Floats) -> Floats:
    """Intersection over union of one box with each of `boxes` [n, 4]; NaN where both have no area."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    common = np.maximum(high - low, 0).prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    shares: Floats = common / ((box[2:] - box[:2]).prod() + areas - common)
    return shares


def hard(threshold: float) -> Decay:
    """Boxes that overlap by `threshold` or more go."""
    return lambda overlap, scores: (scores, ~(overlap >= threshold))


def soft(kernel: int, threshold: float, sigma: float, lowest: float) -> Decay:
    """Scores are multiplied by a function of the overlap; boxes whose score is below `lowest` go."""

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def decay(overlap: Floats, scores: Floats) -> tuple[Floats, Mask]:
        if kernel == 2:
            factor = np.exp(-overlap * overlap / np.float32(sigma))
        else:
            factor = np.where(overlap < threshold, np.float32(1), 1 - overlap if kernel == 1 else np.float32(0))
        lowered = scores * factor
        return lowered, ~(lowered < lowest)

    return decay


def suppress(boxes: Floats, scores: Floats, limit: int, decay: Decay) -> tuple[Indices, Floats]:
    """Takes the pending box with the highest score, lets the others decay, and so on.

    Args:
        boxes: [n, 4].
        scores: [n]; NaN counts as lowest.
        limit: how many to take at most; negative is no limit.
        decay: what becomes of the others.

    Returns:
        The boxes taken, in order, and their scores by then.
    """
    scores = scores.copy()
    pending = np.arange(len(scores))
    taken: list[int] = []
    while len(pending) and len(taken) != limit:
        best = int(np.fmax(scores[pending], -np.inf).argmax())
        # the order of those that are left decides between equal scores
        pending[[0, best]] = pending[[best, 0]]
        front, rest = pending[0], pending[1:]
        taken.append(int(front))
        scores[rest], stay = decay(iou(boxes[front], boxes[rest]), scores[rest])
        pending = _closed_up(rest, stay)
    order = np.array(taken, np.int64)
    return order, scores[order]


def _closed_up(pending: Indices, stay: Mask) -> Indices:
    """The list without those that go: from the front, each gap is filled with the last of those that stay."""
    count = int(np.count_nonzero(stay))
    closed = pending[:count].copy()
    closed[~stay[:count]] = pending[count:][stay[count:]][::-1]
    return closed


def descending(scores: Floats) -> Indices:
    """Indices that sort scores, highest first; equal ones keep their order, NaN comes last."""
    return np.argsort(-scores, kind="stable")
