"""Detection: boxes with classes and scores that the model has decoded."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from nnhal.tflite.model_metadata import BoxFormat
from nnhal_tools.output_kinds.boxes import MIN_SCORE, Box, Detection, suppress_overlapping
from nnhal_tools.output_kinds.finding import Execution, OutputView

_BOUNDARIES = BoxFormat((1, 0, 3, 2), "boundaries", "ratio")
"""Form of the boxes of TFLite_Detection_PostProcess: top, left, bottom, right."""
_TOLERANCE = 0.5
"""Distance by which a box may exceed the picture, as a ratio of its size."""

Values = npt.NDArray[np.float64]


def recognize_postprocessed(execution: Execution) -> Detection | None:
    """Return the boxes of TFLite_Detection_PostProcess: outputs [1,N,4], [1,N], [1,N] and [1]."""
    if len(execution.outputs) != 4 or (position := _boxes_position(execution)) is None:
        return None
    boxes, number = execution.outputs[position], execution.shapes[position][1]
    counts = [i for i, shape in enumerate(execution.shapes) if shape in {(1,), (1, 1)}][-1:]
    vectors = [i for i, shape in enumerate(execution.shapes) if shape == (1, number) and i not in counts]
    if not counts or len(vectors) != 2 or not (order := _classes_and_scores(execution, vectors)):
        return None
    classes, scores, why = order
    valid = min(number, max(0, round(execution.outputs[counts[0]].values.item())))
    found = _decode(boxes, slice(0, valid))
    if found is None:
        return None
    reason = f"outputs [1,{number},4], [1,{number}] twice and a count, as of TFLite_Detection_PostProcess; {why}"
    return Detection(
        reason,
        range(4),
        _chosen(
            execution,
            found,
            execution.outputs[scores].values[0],
            np.rint(execution.outputs[classes].values[0]).astype(int),
        ),
    )


def recognize_boxes_and_scores(execution: Execution) -> Detection | None:
    """Return boxes with scores: outputs [1,N,4] and [1,N,C] or [1,N]. Boxes that overlap a better one are left out."""
    position = _boxes_position(execution)
    if len(execution.outputs) != 2 or position is None:
        return None
    boxes, scores = execution.outputs[position], execution.outputs[1 - position]
    number = boxes.shape[1]
    if scores.shape[:2] != (1, number) or len(scores.shape) > 3 or not _are_probabilities(scores.values):
        return None
    found = _decode(boxes, slice(None))
    if found is None:
        return None
    values = scores.values.reshape(number, -1)
    chosen = _chosen(execution, found, values.max(-1), values.argmax(-1))
    form = "in the form of the metadata" if boxes.metadata.boxes else "as ratios: top, left, bottom, right"
    reason = f"outputs [1,{number},4], boxes {form}, and {str(list(scores.shape)).replace(' ', '')}, scores"
    return Detection(reason, (0, 1), suppress_overlapping(chosen))


def _boxes_position(execution: Execution) -> int | None:
    """Return the position of the only output [1,N,4]."""
    found = [i for i, shape in enumerate(execution.shapes) if len(shape) == 3 and (shape[0], shape[2]) == (1, 4)]
    return found[0] if len(found) == 1 else None


def _classes_and_scores(execution: Execution, vectors: Sequence[int]) -> tuple[int, int, str] | None:
    """Return the positions of classes and scores, and what tells them apart."""
    first, second = (execution.outputs[i] for i in vectors)
    if first.name.endswith("PostProcess:1") and second.name.endswith("PostProcess:2"):
        return vectors[0], vectors[1], "the names tell classes from scores"
    for classes, scores, order in ((first, second, vectors), (second, first, vectors[::-1])):
        if classes.metadata.value_labels or "score" in scores.metadata.name:
            return order[0], order[1], "the metadata tells classes from scores"
    fitting = [
        order
        for classes, scores, order in ((first, second, vectors), (second, first, vectors[::-1]))
        if np.array_equal(classes.values, np.rint(classes.values)) and _are_probabilities(scores.values)
    ]
    if len(fitting) == 1:
        return fitting[0][0], fitting[0][1], "only one of them has whole numbers, the classes"
    return None


def _are_probabilities(values: Values) -> bool:
    return bool(values.size and values.min() >= 0 and values.max() <= 1 + 1e-6)


def _decode(boxes: OutputView, valid: slice) -> list[Box] | None:
    """Return the boxes without their scores. Return None if their numbers do not have the expected form."""
    form = boxes.metadata.boxes or _BOUNDARIES
    order = form.order or _BOUNDARIES.order
    if sorted(order) != [0, 1, 2, 3] or form.coordinates != "ratio":
        return None
    x, y, right, bottom = boxes.values[0][valid][:, order].T
    if form.type in {"center", "upper left"}:  # the last two are width and height
        x, y = (x - right / 2, y - bottom / 2) if form.type == "center" else (x, y)
        right, bottom = x + right, y + bottom
    corners = np.array([x, y, right, bottom])
    is_plausible = np.isfinite(corners).all() and (right >= x).all() and (bottom >= y).all()
    if not is_plausible or (corners.size and (corners.min() < -_TOLERANCE or corners.max() > 1 + _TOLERANCE)):
        return None
    return [Box(0.0, left, top, right_, bottom_) for left, top, right_, bottom_ in corners.T.tolist()]


def _chosen(execution: Execution, boxes: Sequence[Box], scores: Values, classes: npt.NDArray[np.int_]) -> list[Box]:
    """Return the boxes that have a high score, with it and their class, the best first."""
    labels = execution.labels or next((o.metadata.labels for o in execution.outputs if o.metadata.labels), ())
    found = []
    for box, score, class_ in zip(boxes, scores, classes, strict=False):
        if score >= MIN_SCORE:
            label = labels[class_] if 0 <= class_ < len(labels) else ""
            found.append(replace(box, score=float(score), class_=int(class_), label=label))
    return sorted(found, key=lambda box: -box.score)
