"""Arrays against the operands of a prepared model."""

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.tensors import Ends, Inputs
from nnhal.types import DataLocation, Memory, Operand
from nnhal.types import OperandType as T

QUANT8 = Operand(T.TENSOR_QUANT8_ASYMM, (2,), 1)
ENDS = Ends(
    (Operand(T.TENSOR_FLOAT32, (0, 2)), Operand(T.TENSOR_FLOAT32), Operand(T.INT32), QUANT8),
    (Operand(T.TENSOR_FLOAT32, (0, 2)),),
    ("a", "b", "c", "d"),
    ("y",),
)


def test_arrays_become_pools() -> None:
    a, b = np.zeros((3, 2), np.float32), np.zeros((4, 5, 6), np.float32)
    request = ENDS.request([a, b, 7, None])
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


def test_names() -> None:
    request = ENDS.request({"c": 1, "a": [[1, 2]], "b": [[[1]]]})
    assert [argument.dimensions for argument in request.inputs] == [(1, 2), (1, 1, 1), (), ()]


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ({"x": 1}, "no input is named 'x'; there are a, b, c, d"),
        ([1], "1 inputs given; the model takes 4"),
        ([[[1, 2]], [1], 1, [1, 300]], r"input 3 \(d\) cannot become uint8"),
        ([[[1, 2]], [1], "one", [1, 2]], r"input 2 \(c\) cannot become int32"),
        ([[[1, 2], [3]], [1], 1, [1, 2]], r"input 0 \(a\) cannot become float32"),
        ([[[1, 2]], [1], [1, 2], [1, 2]], r"input 2 \(c\) has shape \[2\]; the model takes \[\]"),
        ([[1, 2], [1], 1, [1, 2]], r"input 0 \(a\) has shape \[2\]; the model takes \[0, 2\]"),
        ([[[1, 2]], np.zeros(1), 1, [1, 2]], r"input 1 \(b\) is float64; the model takes float32"),
    ],
)
def test_what_does_not_fit(inputs: Inputs, complaint: str) -> None:
    with pytest.raises(HalError, match=complaint):
        ENDS.request(inputs)
