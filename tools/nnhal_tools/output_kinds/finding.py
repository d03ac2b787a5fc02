"""Outputs of an execution as the recognizers see them, and what they find."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnhal.client.elements import dequantize
from nnhal.tflite.model_metadata import TensorMetadata
from nnhal.types import AnyArray, Operand

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.table import Table


def real_values(output: AnyArray, operand: Operand) -> npt.NDArray[np.float64]:
    """Return the real values of an output, dequantized if its type is quantized."""
    return dequantize(operand, output).astype(np.float64)


@dataclass(frozen=True)
class OutputView:
    """Output of a model.

    Attributes:
        are_integers: whether its elements are integers that are not quantized.
        metadata: its metadata, with empty fields if the file has none.
    """

    name: str
    values: npt.NDArray[np.float64]
    are_integers: bool = False
    metadata: TensorMetadata = field(default_factory=TensorMetadata)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.values.shape


@dataclass(frozen=True)
class Execution:
    """Inputs and outputs of an execution.

    Attributes:
        labels: the labels that the user has given, or ().
    """

    outputs: Sequence[OutputView]
    input_shapes: Sequence[tuple[int, ...]] = ()
    labels: Sequence[str] = ()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the outputs."""
        return [output.shape for output in self.outputs]

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the image that the model takes, or None if it does not take one image."""
        match [shape for shape in self.input_shapes if len(shape) == 4]:
            case [(1, height, width, 1 | 3 | 4)] | [(1, 1 | 3, height, width)]:
                return height, width
        return None

    def labels_of(self, output: OutputView, count: int) -> Sequence[str]:
        """Return the labels of a number of classes: those of the user, or else of the output. Return () without any."""
        labels = self.labels or output.metadata.labels
        return labels if len(labels) == count else ()

    def with_origin(self, reason: str, labels: Sequence[str]) -> str:
        """Return the reason of a finding, with the origin of its labels if they are not the user's."""
        return f"{reason}; labels from the metadata" if labels and not self.labels else reason


@dataclass
class Finding(ABC):
    """Meaning of outputs.

    Attributes:
        reason: the names, metadata or shapes that tell the kind.
        positions: positions of the outputs that it explains.
    """

    kind: ClassVar[str]
    reason: str
    positions: Sequence[int]

    @property
    def note(self) -> str:
        """Line of text that belongs to the table, or ""."""
        return ""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return the finding as values for JSON."""

    @abstractmethod
    def row(self) -> dict[str, Any]:
        """Return the finding in one line: cells by column. The columns do not depend on the values."""

    @abstractmethod
    def table(self) -> "Table | None":
        """Return the finding as a table, or None if there is nothing to list."""

    @abstractmethod
    def draw(self, picture: "Image") -> "Image":
        """Return a picture with the finding drawn on it."""
