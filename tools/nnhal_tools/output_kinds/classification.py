"""Classification: a value for each class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnhal_tools.output_kinds.finding import Execution, Finding
from nnhal_tools.tables import make_table

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.table import Table

SHOWN_CLASSES = 5


@dataclass
class ClassScores(Finding):
    """Values of classes."""

    kind: ClassVar[str] = "classification"

    values: npt.NDArray[np.float64]
    labels: Sequence[str]

    @property
    def best(self) -> list[dict[str, Any]]:
        """The classes with the highest values: their number, label if there is one, and probability or score."""
        is_probability = self.values.min() >= 0 and self.values.max() <= 1  # otherwise the model has no softmax
        return [
            {
                "class": int(index),
                **({"label": self.labels[index]} if self.labels else {}),
                "probability" if is_probability else "score": float(self.values[index]),
            }
            for index in np.argsort(-self.values, kind="stable")[:SHOWN_CLASSES]
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the best classes."""
        return {"classes": self.best}

    def row(self) -> dict[str, Any]:
        """Return the best class."""
        return self.best[0]

    def table(self) -> "Table":
        """Return the best classes as a table."""
        rows = self.best
        table = make_table(*rows[0], right=rows[0].keys() - {"label"})
        formats = {"class": "d", "label": "", "probability": ".4f", "score": ".4g"}
        for row in rows:
            table.add_row(*(format(value, formats[column]) for column, value in row.items()))
        return table

    def draw(self, picture: "Image") -> "Image":
        """Return the picture with the best classes below it."""
        from nnhal_tools.output_kinds.drawing import add_legend, scale_picture

        rows = [
            (None, f"{row.get('label', 'class {}'.format(row['class']))}: {name} {row[name]:.3g}")
            for row in self.best
            for name in row.keys() & {"probability", "score"}
        ]
        return add_legend(scale_picture(picture), rows)


def recognize_classification(execution: Execution) -> ClassScores | None:
    """Return a classification if the first output is [1,N] with N > 1, and has another shape than each input.

    It is the only output, or there are labels for it: several outputs may mean anything.
    """
    match execution.shapes:
        case [(1, count), *others] if count > 1 and (1, count) not in execution.input_shapes:
            output = execution.outputs[0]
            labels = execution.labels_of(output, count)
            if others and not labels:
                return None
            reason = f"output {output.name} is [1,{count}], a value for each class"
            return ClassScores(execution.with_origin(reason, labels), (0,), output.values[0], labels)
    return None
