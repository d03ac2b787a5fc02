"""Options of custom operators, for their converters and for shape inference."""

import struct

import numpy as np
import pytest

from nnhal.tflite.custom_options import CustomPadding, WindowOptions, window_options
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import Operator, Tensor, TfliteGraph
from nnhal.tflite.shapes import output_shapes
from nnhal.tflite_schema import BuiltinOperator

DECLARED = (9, 9, 9, 9)


def operator(data: bytes) -> Operator:
    return Operator(0, BuiltinOperator.CUSTOM, "CUSTOM Convolution2DTransposeBias", (0, 1), (2,), custom_options=data)


@pytest.mark.parametrize(
    ("padding", "shape"), [(CustomPadding.SAME, (1, 8, 15, 5)), (CustomPadding.VALID, (1, 9, 15, 5))]
)
def test_width_precedes_height(padding: CustomPadding, shape: tuple[int, ...]) -> None:
    made = operator(struct.pack("<3i", padding, 3, 2))
    assert window_options(made) == WindowOptions(padding, stride_width=3, stride_height=2)
    tensors = [Tensor(i, "", 0, each) for i, each in enumerate([(1, 4, 5, 2), (5, 3, 3, 2), DECLARED])]
    graph = TfliteGraph(np.empty(0, np.uint8), tuple(tensors), (made,), (0,), (2,))
    assert list(output_shapes(graph, made)) == [shape]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"12345678901", "has 11 bytes of options; expected at least 12"),
        (struct.pack("<3i", 3, 1, 1), "padding 3 is neither SAME nor VALID"),
    ],
)
def test_damaged_options_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(TfliteError, match=reason):
        window_options(operator(data))
