"""Boxes with scores: selection, table and drawing. `detection` and `anchors` recognize them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nnhal_tools.output_kinds.finding import Finding

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.table import Table

MIN_SCORE = 0.5
MAX_OVERLAP = 0.3
"""Maximum intersection over union of two boxes of a class."""


@dataclass(frozen=True)
class Box:
    """Object in a picture. Coordinates are ratios of the picture's size.

    Attributes:
        class_: number of its class.
        label: label of its class, or "".
        points: x and y of its landmarks.
    """

    score: float
    left: float
    top: float
    right: float
    bottom: float
    class_: int = 0
    label: str = ""
    points: tuple[tuple[float, float], ...] = ()

    def overlap(self, other: "Box") -> float:
        """Return the intersection over union."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        if width <= 0 or height <= 0:
            return 0.0
        return width * height / (self.area + other.area - width * height)

    @property
    def area(self) -> float:
        """The area."""
        return (self.right - self.left) * (self.bottom - self.top)


def suppress_overlapping(boxes: Iterable[Box]) -> list[Box]:
    """Return boxes by descending score, without those that overlap a better one of the same class."""
    chosen: list[Box] = []
    for box in sorted(boxes, key=lambda box: -box.score):
        if all(box.class_ != other.class_ or box.overlap(other) <= MAX_OVERLAP for other in chosen):
            chosen.append(box)
    return chosen


@dataclass
class Detection(Finding):
    """Boxes that have at least `MIN_SCORE`, the best first."""

    kind: ClassVar[str] = "detection"

    reason: str
    positions: Sequence[int]
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
                    **({"points": [list(point) for point in box.points]} if box.points else {}),
                }
                for box in self.boxes
            ]
        }

    @property
    def note(self) -> str:
        """Say if there are no boxes."""
        return "" if self.boxes else f"no boxes with a score of at least {MIN_SCORE}"

    def table(self) -> "Table | None":
        """Return the boxes as a table."""
        from rich.table import Table

        if not self.boxes:
            return None
        table = Table("object")
        for column in ("score", "left", "top", "right", "bottom"):
            table.add_column(column, justify="right")
        for box in self.boxes:
            corners = (f"{side:.3f}" for side in (box.left, box.top, box.right, box.bottom))
            table.add_row(_name(box), f"{box.score:.3f}", *corners)
        return table

    def draw(self, picture: "Image") -> "Image":
        """Return the picture with the boxes, their landmarks and captions."""
        from PIL import ImageDraw

        from nnhal_tools.output_kinds.drawing import class_color, draw_caption, line_width, scale_picture, to_pixels

        result = scale_picture(picture)
        canvas, width = ImageDraw.Draw(result), line_width(result)
        for box in reversed(self.boxes):  # the best box is on top
            color = class_color(box.class_ + 1)
            (left, top), (right, bottom) = to_pixels(
                np.clip([(box.left, box.top), (box.right, box.bottom)], 0, 1), result
            )
            canvas.rectangle((left, top, max(left, right), max(top, bottom)), outline=color, width=width)
            for x, y in to_pixels(box.points, result) if box.points else ():
                canvas.ellipse((x - 2 * width, y - 2 * width, x + 2 * width, y + 2 * width), fill=color)
            draw_caption(canvas, left, top, f"{_name(box)} {box.score:.2f}", color)
        return result


def _name(box: Box) -> str:
    return box.label or f"class {box.class_}"
