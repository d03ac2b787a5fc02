"""Comparison with recorded outputs: equal, within the tolerance, and different."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnhal.recording.comparison import compare_outputs
from nnhal.types import Model as HalModel
from nnhal.types import Operand, OperandLifeTime, Subgraph
from nnhal.types import OperandType as T

INF, NAN = np.inf, np.nan


def outcome(type_: T, actual: object, expected: object, dtype: str, relaxed: bool = False) -> str:
    operand = Operand(type_, (0,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    model = HalModel(Subgraph((operand,), (), (), (0,)), relax_computation_float32_to_float16=relaxed)
    differences = list(compare_outputs(model, [0], [np.array(actual, dtype)], [np.array(expected, dtype)]))
    return "equal" if not differences else "within" if differences[0].is_allowed else "different"


@pytest.mark.parametrize(
    ("type_", "dtype", "actual", "expected", "result"),
    [
        (T.TENSOR_FLOAT32, "f4", [1, NAN, INF], [1, NAN, INF], "equal"),
        (T.TENSOR_FLOAT32, "f4", [1 + 1e-6, NAN, INF], [1, NAN, INF], "within"),
        (T.TENSOR_FLOAT32, "f4", [1.001, NAN], [1, NAN], "different"),
        (T.TENSOR_FLOAT32, "f4", [NAN], [1], "different"),
        (T.TENSOR_FLOAT32, "f4", [1], [NAN], "different"),
        (T.TENSOR_FLOAT32, "f4", [INF], [-INF], "different"),
        (T.TENSOR_FLOAT32, "f4", [3.4e38], [INF], "different"),
        (T.TENSOR_FLOAT16, "f2", [1.001], [1], "within"),
        (T.TENSOR_QUANT8_ASYMM, "u1", [0, 255], [1, 254], "within"),
        (T.TENSOR_QUANT8_ASYMM, "u1", [0, 255], [2, 255], "different"),
        (T.TENSOR_QUANT8_ASYMM_SIGNED, "i1", [-128], [127], "different"),
        (T.TENSOR_QUANT16_SYMM, "i2", [-32768], [-32767], "within"),
        (T.TENSOR_INT32, "i4", [1], [2], "different"),
        (T.TENSOR_BOOL8, "?", [True, False], [True, True], "different"),
        (T.TENSOR_FLOAT32, "f4", [], [], "equal"),
        (T.TENSOR_FLOAT32, "f4", [1, 2], [1], "different"),
        (T.TENSOR_FLOAT32, "f4", [[1, 2]], [1, 2], "different"),
    ],
)
def test_outcomes(type_: T, dtype: str, actual: Sequence[object], expected: Sequence[object], result: str) -> None:
    assert outcome(type_, actual, expected, dtype) == result


def test_relaxed_models_have_the_tolerance_of_half_precision() -> None:
    assert outcome(T.TENSOR_FLOAT32, [1.003], [1], "f4") == "different"
    assert outcome(T.TENSOR_FLOAT32, [1.003], [1], "f4", relaxed=True) == "within"


def test_outputs_without_expectation_are_left_out() -> None:
    operand = Operand(T.TENSOR_FLOAT32, (1,), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    model = HalModel(Subgraph((operand, operand), (), (), (0, 1)))
    one, two = np.ones(1, np.float32), np.full(1, 2, np.float32)
    (difference,) = compare_outputs(model, [0, 1], [one, one], [None, two])
    assert difference.output == 1 and difference.measured.maximum > 1000 and "= 2 within" in difference.expected
