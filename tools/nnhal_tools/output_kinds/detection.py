"""Detection: boxes with classes and scores, as the operator TFLite_Detection_PostProcess returns them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnhal.tflite.model_metadata import BoxFormat
from nnhal_tools.output_kinds.finding import Execution, Finding, OutputView
from nnhal_tools.tables import make_table

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.table import Table

MIN_SCORE = 0.5
_BOUNDARIES = BoxFormat((1, 0, 3, 2), "boundaries", "ratio")
"""Form of the boxes of TFLite_Detection_PostProcess: top, left, bottom, right."""
_TOLERANCE = 0.5
"""Distance by which a box may exceed the picture, as a ratio of its size."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Box:
    """Object in a picture. Coordinates are ratios of the picture's size.

    Attributes:
        label: label of its class, or "".
    """

    score: float
    left: float
    top: float
    right: float
    bottom: float
    class_: int = 0
    label: str = ""

    @property
    def name(self) -> str:
        """The label, or the number of the class."""
        return self.label or f"class {self.class_}"


@dataclass
class Detection(Finding):
    """Boxes that have at least `MIN_SCORE`, the best first."""

    kind: ClassVar[str] = "detection"

    boxes: Sequence[Box]

    def as_json(self) -> dict[str, Any]:
        """Return the boxes, with coordinates as ratios."""
        return {
            "boxes": [
                {
                    "class": box.class_,
                    **({"label": box.label} if box.label else {}),
                    "score": box.score,
                    "box": [box.left, box.top, box.right, box.bottom],
                }
                for box in self.boxes
            ]
        }

    def row(self) -> dict[str, Any]:
        """Return the number of boxes, and the best one."""
        best = self.boxes[0] if self.boxes else None
        return {"objects": len(self.boxes), "best": best.name if best else "", "score": best.score if best else None}

    @property
    def note(self) -> str:
        """Say if there are no boxes."""
        return "" if self.boxes else f"no boxes with a score of at least {MIN_SCORE}"

    def table(self) -> "Table | None":
        """Return the boxes as a table."""
        if not self.boxes:
            return None
        numbers = ("score", "left", "top", "right", "bottom")
        table = make_table("object", *numbers, right=numbers)
        for box in self.boxes:
            corners = (f"{side:.3f}" for side in (box.left, box.top, box.right, box.bottom))
            table.add_row(box.name, f"{box.score:.3f}", *corners)
        return table

    def draw(self, picture: "Image") -> "Image":
        """Return the picture with the boxes and captions."""
        from PIL import ImageDraw

        from nnhal_tools.output_kinds.drawing import class_color, draw_caption, scale_picture

        result = scale_picture(picture)
        canvas, width = ImageDraw.Draw(result), max(2, min(result.size) // 200)
        for box in reversed(self.boxes):  # the best box is on top
            color = class_color(box.class_ + 1)
            corners = np.clip([(box.left, box.top), (box.right, box.bottom)], 0, 1)
            (left, top), (right, bottom) = corners * result.size
            canvas.rectangle((left, top, max(left, right), max(top, bottom)), outline=color, width=width)
            draw_caption(canvas, left, top, f"{box.name} {box.score:.2f}", color)
        return result


def recognize_detection(execution: Execution) -> Detection | None:
    """Return the boxes of TFLite_Detection_PostProcess: outputs [1,N,4], [1,N], [1,N] and [1].

    Names or metadata must tell the classes from the scores.
    """
    if len(execution.outputs) != 4 or (position := _boxes_position(execution)) is None:
        return None
    boxes, number = execution.outputs[position], execution.shapes[position][1]
    counts = [i for i, shape in enumerate(execution.shapes) if shape in {(1,), (1, 1)}][-1:]
    vectors = [output for i, output in enumerate(execution.outputs) if output.shape == (1, number) and i not in counts]
    if not counts or len(vectors) != 2 or (order := _classes_and_scores(*vectors)) is None:
        return None
    classes, scores, why = order
    valid = min(number, max(0, round(execution.outputs[counts[0]].values.item())))
    found = _decode(boxes, valid)
    if found is None:
        return None
    reason = f"outputs [1,{number},4], [1,{number}] twice and a count, as of TFLite_Detection_PostProcess; {why}"
    return Detection(reason, range(4), _choose(execution, found, scores.values[0], classes.values[0]))


def _boxes_position(execution: Execution) -> int | None:
    """Return the position of the only output [1,N,4]."""
    found = [i for i, shape in enumerate(execution.shapes) if len(shape) == 3 and (shape[0], shape[2]) == (1, 4)]
    return found[0] if len(found) == 1 else None


def _classes_and_scores(first: OutputView, second: OutputView) -> tuple[OutputView, OutputView, str] | None:
    """Return the classes, the scores, and what tells them apart."""
    for classes, scores in ((first, second), (second, first)):
        if classes.name.endswith("PostProcess:1") and scores.name.endswith("PostProcess:2"):
            return classes, scores, "the names tell classes from scores"
        if classes.metadata.value_labels or "score" in scores.metadata.name:
            return classes, scores, "the metadata tells classes from scores"
    return None


def _decode(boxes: OutputView, count: int) -> list[Box] | None:
    """Return the first boxes without their scores. Return None if their numbers do not have the expected form."""
    form = boxes.metadata.boxes or _BOUNDARIES
    order = form.order or _BOUNDARIES.order
    if sorted(order) != [0, 1, 2, 3] or form.coordinates != "ratio":
        return None
    x, y, right, bottom = boxes.values[0][:count, order].T
    if form.type in {"center", "upper left"}:  # the last two are width and height
        x, y = (x - right / 2, y - bottom / 2) if form.type == "center" else (x, y)
        right, bottom = x + right, y + bottom
    corners = np.array([x, y, right, bottom])
    is_plausible = np.isfinite(corners).all() and (right >= x).all() and (bottom >= y).all()
    if not is_plausible or (corners.size and (corners.min() < -_TOLERANCE or corners.max() > 1 + _TOLERANCE)):
        return None
    return [Box(0.0, left, top, right_, bottom_) for left, top, right_, bottom_ in corners.T.tolist()]


def _choose(execution: Execution, boxes: Sequence[Box], scores: Values, classes: Values) -> list[Box]:
    """Return the boxes that have a high score, with it and their class, the best first."""
    labels = execution.labels or next((o.metadata.labels for o in execution.outputs if o.metadata.labels), ())
    found = []
    for box, score, class_ in zip(boxes, scores, np.rint(classes).astype(int), strict=False):
        if score >= MIN_SCORE:
            label = labels[class_] if 0 <= class_ < len(labels) else ""
            found.append(replace(box, score=float(score), class_=int(class_), label=label))
    return sorted(found, key=lambda box: -box.score)
