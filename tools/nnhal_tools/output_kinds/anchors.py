"""Detectors of MediaPipe: their boxes and landmarks are relative to anchors, which only the model's family tells.

Sources: the graphs `face_detection_short_range`, `face_detection_full_range` and `palm_detection` of MediaPipe, and
`ssd_anchors_calculator` and `tensors_to_detections_calculator`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnhal_tools.output_kinds.boxes import MIN_SCORE, Box, Detection, suppress_overlapping
from nnhal_tools.output_kinds.finding import Execution

_MAX_LOGIT = 100.0


@dataclass(frozen=True)
class AnchorGrid:
    """Detector with a grid of anchors.

    Attributes:
        name: what it detects.
        side: width and height of its image.
        layers: cells in each direction and anchors per cell, of each layer.
        numbers: numbers per box: center, size, and two per landmark.
    """

    name: str
    side: int
    layers: tuple[tuple[int, int], ...]
    numbers: int

    @property
    def count(self) -> int:
        """Number of anchors."""
        return sum(cells * cells * anchors for cells, anchors in self.layers)

    def centers(self) -> npt.NDArray[np.float64]:
        """Return x and y of the center of each anchor, as ratios."""
        parts = []
        for cells, anchors in self.layers:
            y, x = np.divmod(np.arange(cells * cells), cells)
            parts.append(np.repeat((np.stack([x, y], -1) + 0.5) / cells, anchors, 0))
        return np.concatenate(parts)


DETECTORS = (
    AnchorGrid("face", 128, ((16, 2), (8, 6)), 16),
    AnchorGrid("face", 192, ((48, 1),), 16),
    AnchorGrid("palm", 192, ((24, 2), (12, 6)), 18),
)


def recognize_anchored(execution: Execution) -> Detection | None:
    """Return the boxes of a face or palm detector of MediaPipe, by the shapes of its image, boxes and scores."""
    for grid in DETECTORS:
        if execution.image_size == (grid.side, grid.side) and execution.shapes == [
            (1, grid.count, grid.numbers),
            (1, grid.count, 1),
        ]:
            boxes, scores = execution.outputs
            reason = (
                f"outputs [1,{grid.count},{grid.numbers}] and [1,{grid.count},1] for an image of "
                f"{grid.side}x{grid.side}, as of MediaPipe's {grid.name} detector"
            )
            return Detection(reason, (0, 1), _decode(grid, boxes.values[0], scores.values[0, :, 0]))
    return None


def _decode(grid: AnchorGrid, boxes: npt.NDArray[np.float64], logits: npt.NDArray[np.float64]) -> list[Box]:
    scores = 1 / (1 + np.exp(-np.clip(logits, -_MAX_LOGIT, _MAX_LOGIT)))
    centers, found = grid.centers(), []
    for i in np.flatnonzero(scores >= MIN_SCORE):
        center = centers[i]
        points = boxes[i].reshape(-1, 2) / grid.side
        (x, y), (width, height) = points[0] + center, points[1]
        landmarks = tuple((float(px), float(py)) for px, py in points[2:] + center)
        left, top = float(x - width / 2), float(y - height / 2)
        right, bottom = float(x + width / 2), float(y + height / 2)
        found.append(Box(float(scores[i]), left, top, right, bottom, label=grid.name, points=landmarks))
    return suppress_overlapping(found)
