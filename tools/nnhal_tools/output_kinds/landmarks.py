"""Landmarks: points of a body or a hand, and the lines between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnhal_tools.output_kinds.finding import Execution, Finding

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.table import Table

MIN_SCORE = 0.3
"""Minimum score of a point that is drawn."""

BODY = (
    *("nose", "left eye", "right eye", "left ear", "right ear", "left shoulder", "right shoulder", "left elbow"),
    *("right elbow", "left wrist", "right wrist", "left hip", "right hip", "left knee", "right knee", "left ankle"),
    "right ankle",
)
"""The points of COCO."""
BODY_LINES = (
    *((0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10)),
    *((5, 11), (6, 12), (11, 12), (11, 13), (13, 15), (12, 14), (14, 16)),
)
HAND = ("wrist", *(f"{finger} {i}" for finger in ("thumb", "index", "middle", "ring", "little") for i in range(1, 5)))
HAND_LINES = (
    *((finger + i, finger + i + 1) for finger in (1, 5, 9, 13, 17) for i in range(3)),
    *((0, 1), (0, 5), (5, 9), (9, 13), (13, 17), (0, 17)),
)
_HAND_SIDE = 224


@dataclass
class Landmarks(Finding):
    """Points with names.

    Attributes:
        points: x, y and score of each point. x and y are ratios of the picture's size.
        lines: pairs of points.
        facts: further values of the model, such as the presence of a hand.
    """

    kind: ClassVar[str] = "landmarks"
    uses_labels: ClassVar[bool] = False

    reason: str
    positions: Sequence[int]
    names: Sequence[str]
    lines: Sequence[tuple[int, int]]
    points: npt.NDArray[np.float64]
    facts: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the points."""
        return {
            "landmarks": [
                {"name": name, "x": float(x), "y": float(y), "score": float(score)}
                for name, (x, y, score) in zip(self.names, self.points, strict=True)
            ],
            **self.facts,
        }

    @property
    def note(self) -> str:
        """The further values."""
        return ", ".join(f"{name} {value:.3f}" for name, value in self.facts.items())

    def table(self) -> "Table":
        """Return the points as a table."""
        from rich.table import Table

        table = Table("point")
        for column in ("x", "y", "score"):
            table.add_column(column, justify="right")
        for name, point in zip(self.names, self.points, strict=True):
            table.add_row(name, *(f"{value:.3f}" for value in point))
        return table

    def draw(self, picture: "Image") -> "Image":
        """Return the picture with the points, and lines between those that have a score."""
        from PIL import ImageDraw

        from nnhal_tools.output_kinds.drawing import PALETTE, line_width, scale_picture, to_pixels

        result = scale_picture(picture)
        canvas, width = ImageDraw.Draw(result), line_width(result)
        places = to_pixels(self.points[:, :2], result)
        is_drawn = self.points[:, 2] >= MIN_SCORE
        for begin, end in self.lines:
            if is_drawn[begin] and is_drawn[end]:
                canvas.line((*places[begin], *places[end]), fill=PALETTE[5], width=width)
        for x, y in places[is_drawn]:
            radius = 2 * width
            canvas.ellipse((x - radius, y - radius, x + radius, y + radius), fill=PALETTE[0], outline="white")
        return result


def recognize_pose(execution: Execution) -> Landmarks | None:
    """Return the points of MoveNet: the only output is [1,1,17,3], y, x and score of the points of COCO."""
    if execution.shapes != [(1, 1, len(BODY), 3)]:
        return None
    points = execution.outputs[0].values[0, 0][:, [1, 0, 2]]
    reason = f"output {execution.outputs[0].name} is [1,1,17,3], the points of a body as of MoveNet"
    return Landmarks(reason, (0,), BODY, BODY_LINES, points, {})


def recognize_hand(execution: Execution) -> Landmarks | None:
    """Return the points of MediaPipe's hand model: outputs [1,63], [1,1], [1,1], [1,63] for an image of 224x224."""
    if execution.image_size != (_HAND_SIDE, _HAND_SIDE) or execution.shapes != [(1, 63), (1, 1), (1, 1), (1, 63)]:
        return None
    presence, handedness = (float(execution.outputs[i].values.item()) for i in (1, 2))
    points = execution.outputs[0].values.reshape(len(HAND), 3) / _HAND_SIDE
    points[:, 2] = presence
    reason = "outputs [1,63], [1,1], [1,1] and [1,63] for an image of 224x224, as of MediaPipe's hand landmarks"
    facts = {"presence": presence, "handedness": handedness}
    return Landmarks(reason, range(4), HAND, HAND_LINES, points, facts)
