"""Rules for shapes: what they must not pass on."""

from typing import Any

import numpy as np
import pytest

from nnhal.tflite_schema import shapes  # noqa: F401 - registers the rules
from nnhal.tflite_schema.shapes.rule import ShapeCall, ShapeError, infer_shapes
from nnhal.types import AnyArray


class Padding(ShapeCall):
    """PAD of a vector, with paddings of any type."""

    def __init__(self, paddings: AnyArray) -> None:
        super().__init__("PAD", 2, [(0,)])
        self._paddings = paddings

    def shape(self, position: int) -> tuple[int, ...]:
        return (4,) if position == 0 else (1, 2)

    def has(self, position: int) -> bool:
        return position < 2

    def array(self, position: int) -> AnyArray:
        return self._paddings

    def option(self, name: str, default: Any) -> Any:
        return default


def test_lengths_are_integers() -> None:
    assert list(infer_shapes(Padding(np.array([[1, 2]])))) == [(7,)]
    with pytest.raises(ShapeError):
        infer_shapes(Padding(np.array([[1.0, 0.5]], np.float32)))
