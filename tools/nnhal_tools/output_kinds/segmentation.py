"""Segmentation: a class for each pixel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnhal.types import Bytes
from nnhal_tools.output_kinds.finding import Execution, Finding, OutputView
from nnhal_tools.tables import make_table

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.table import Table

MAX_CLASSES = 256
MASK_THRESHOLD = 0.5
_OPACITY = 0.55


@dataclass
class Segmentation(Finding):
    """Classes of the pixels. Class 0 is usually the background, and is not colored."""

    kind: ClassVar[str] = "segmentation"

    classes: Bytes
    labels: Sequence[str]

    @property
    def shares(self) -> list[dict[str, Any]]:
        """The classes that occur, the most frequent first: number, label if there is one, and share of the pixels."""
        counts = np.bincount(self.classes.ravel())
        return [
            {
                "class": int(index),
                **({"label": self.labels[index]} if index < len(self.labels) else {}),
                "share": float(counts[index] / self.classes.size),
            }
            for index in np.argsort(-counts, kind="stable")
            if counts[index]
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the shares of the classes."""
        return {"segments": self.shares}

    def row(self) -> dict[str, Any]:
        """Return the most frequent class that is colored, or the background if there is no other."""
        return next((row for row in self.shares if row["class"]), self.shares[0])

    def table(self) -> "Table":
        """Return the shares of the classes as a table."""
        table = make_table("class", *(["label"] if self.labels else []), "share", right=("class", "share"))
        for row in self.shares:
            label = [row.get("label", "")] if self.labels else []
            table.add_row(str(row["class"]), *label, f"{row['share']:.2%}")
        return table

    def draw(self, picture: "Image") -> "Image":
        """Return the picture with colored classes, and a legend of the classes and their shares."""
        from PIL import Image

        from nnhal_tools.output_kinds.drawing import add_legend, class_color, scale_picture

        base = scale_picture(picture)
        colors = np.array([class_color(i) for i in range(MAX_CLASSES)], np.uint8)
        classes = np.asarray(Image.fromarray(self.classes).resize(base.size, Image.Resampling.NEAREST))
        opacity = np.where(classes[..., np.newaxis] > 0, _OPACITY, 0.0)
        blended = np.asarray(base) * (1 - opacity) + colors[classes] * opacity
        legend = [
            (
                class_color(row["class"]) if row["class"] else None,
                f"{row['share']:.1%}  {row.get('label', 'class {}'.format(row['class']))}"
                + ("" if row["class"] else " (not colored)"),
            )
            for row in self.shares
        ]
        return add_legend(Image.fromarray(np.rint(blended).astype(np.uint8)), legend)


def recognize_segmentation(execution: Execution) -> Segmentation | None:
    """Return a segmentation if the only output has about the image's size, and contains classes or their values."""
    if execution.image_size is None or len(execution.outputs) != 1:
        return None
    (output,) = execution.outputs
    size = "x".join(map(str, execution.image_size))
    shape = str(list(output.shape)).replace(" ", "")
    match output.shape:
        case (1, height, width) | (1, height, width, 1) if _is_about((height, width), execution.image_size):
            labels = execution.labels or output.metadata.labels
            found = _class_map(output) or _mask(output)
            if not found:
                return None
            classes, how = found
            if how.startswith("a mask") and len(labels) == 1:
                labels = ("background", *labels)
        case (1, height, width, count) if _is_about((height, width), execution.image_size):
            labels = execution.labels_of(output, count)
            if count > MAX_CLASSES or (count <= 4 and not labels):  # an image, for example, has 3 or 4 channels
                return None
            classes, how = output.values[0].argmax(-1).astype(np.uint8), f"values of {count} classes for each pixel"
        case _:
            return None
    reason = f"output {output.name} is {shape} for an image of {size}: {how}"
    return Segmentation(execution.with_origin(reason, labels), (0,), classes, labels)


def _is_about(size: tuple[int, int], image_size: tuple[int, int]) -> bool:
    """Return whether a size is half to double the size of the image, in both dimensions."""
    return all(image / 2 <= side <= image * 2 for side, image in zip(size, image_size, strict=True))


def _class_map(output: OutputView) -> tuple[Bytes, str] | None:
    """Return the classes if the elements are numbers of classes."""
    values = output.values.reshape(output.shape[1:3])
    if not output.are_integers or values.min() < 0 or values.max() >= MAX_CLASSES:
        return None
    return values.astype(np.uint8), "the number of a class for each pixel"


def _mask(output: OutputView) -> tuple[Bytes, str] | None:
    """Return classes 0 and 1 if the elements are probabilities."""
    values: npt.NDArray[np.float64] = output.values.reshape(output.shape[1:3])
    if output.are_integers or not (values.min() >= 0 and values.max() <= 1 + 1e-6):  # also if there are NaN
        return None
    return (values >= MASK_THRESHOLD).astype(np.uint8), f"a mask of values from 0 to 1, divided at {MASK_THRESHOLD}"
