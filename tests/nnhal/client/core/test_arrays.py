"""Conversion of arrays to requests, and errors for arrays that do not match their operands."""

import numpy as np
import pytest

from nnhal.client.core.arrays import Inputs, ModelIO
from nnhal.errors import HalError
from nnhal.types import DataLocation, Memory, Operand
from nnhal.types import OperandType as T

QUANT8 = Operand(T.TENSOR_QUANT8_ASYMM, (2,), 1)
IO = ModelIO(
    (Operand(T.TENSOR_FLOAT32, (0, 2)), Operand(T.TENSOR_FLOAT32), Operand(T.INT32), QUANT8),
    (Operand(T.TENSOR_FLOAT32, (0, 2)),),
    ("a", "b", "c", "d"),
    ("y",),
)


def test_each_array_becomes_a_pool() -> None:
    a, b = np.zeros((3, 2), np.float32), np.zeros((4, 5, 6), np.float32)
    request = IO.request([a, b, 7, None])
    assert [argument.dimensions for argument in request.inputs] == [(3, 2), (4, 5, 6), (), ()]
    assert [argument.location for argument in request.inputs[:3]] == [
        DataLocation(0, 0, 24),
        DataLocation(1, 0, 480),
        DataLocation(2, 0, 4),
    ]
    assert request.inputs[3].has_no_value
    number = request.pools[2]
    assert isinstance(number, Memory)
    assert number.view.tobytes() == np.int32(7).tobytes()


def test_inputs_by_name() -> None:
    request = IO.request({"c": 1, "a": [[1, 2]], "b": [[[1]]], "d": None})
    assert [argument.dimensions for argument in request.inputs] == [(1, 2), (1, 1, 1), (), ()]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": 1}, "no input is named 'x'; there are a, b, c, d"),
        ({"a": [[1, 2]], "c": 1}, "there is no value for input 'b'; None omits an optional input"),
        ([1], "1 inputs given; the model takes 4"),
        ([[[1, 2]], [1], 1, [1, 300]], r"input 3 \(d\) cannot be converted to uint8"),
        ([[[1, 2]], [1], "one", [1, 2]], r"input 2 \(c\) cannot be converted to int32"),
        ([[[1, 2], [3]], [1], 1, [1, 2]], r"input 0 \(a\) cannot be converted to float32"),
        ([[[1, 2]], [1], [1, 2], [1, 2]], r"input 2 \(c\) has shape \[2\]; the model takes \[\]"),
        ([[1, 2], [1], 1, [1, 2]], r"input 0 \(a\) has shape \[2\]; the model takes \[0, 2\]"),
        ([[[1, 2]], np.zeros(1), 1, [1, 2]], r"input 1 \(b\) is float64; the model takes float32"),
    ],
)
def test_inputs_that_do_not_match_are_rejected(inputs: Inputs, message: str) -> None:
    with pytest.raises(HalError, match=message):
        IO.request(inputs)
