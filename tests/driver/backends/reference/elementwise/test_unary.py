"""ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN and SQRT on CpuRef: cases computed by hand, and comparison with LiteRT."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert
from tests.driver.one_operation import run, run_kernel, sample, tensor

pytestmark = pytest.mark.filterwarnings("error")

F32, F16, I32 = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_INT32
U8, I8 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
UNARY = [Op.ABS, Op.EXP, Op.FLOOR, Op.LOG, Op.NEG, Op.RSQRT, Op.SIN, Op.SQRT]
NAN, INF, LOWEST = float("nan"), float("inf"), -(2**31)


def run_one(type_: Op, operand: T, values: list[float]) -> list[float]:
    actual: list[float] = run(type_, [(tensor(operand, (len(values),)), values)], [tensor(operand)])[0].tolist()
    return actual


CASES = [
    (Op.ABS, [-1.5, -0.0, -INF, NAN, 2], [1.5, 0, INF, NAN, 2]),
    (Op.NEG, [-1.5, 0.0, -INF, NAN, 2], [1.5, -0.0, INF, NAN, -2]),
    (Op.FLOOR, [-1.5, -0.0, 1.5, INF, NAN], [-2, -0.0, 1, INF, NAN]),
    (Op.EXP, [0, 1, -INF, INF, NAN, 100], [1, math.e, 0, INF, NAN, INF]),
    (Op.LOG, [1, 0, -0.0, -1, INF, NAN, 8], [0, -INF, -INF, NAN, INF, NAN, math.log(8)]),
    (Op.RSQRT, [4, 0.25, 0.0, -0.0, -1, INF, NAN], [0.5, 2, INF, -INF, NAN, 0, NAN]),
    (Op.SIN, [0, math.pi / 2, -math.pi / 6, INF, NAN], [0, 1, -0.5, NAN, NAN]),
    (Op.SQRT, [4, 0.25, 2, -0.0, -1, INF], [2, 0.5, 2**0.5, -0.0, NAN, INF]),
]


@pytest.mark.parametrize(("type_", "values", "expected"), CASES)
@pytest.mark.parametrize(("operand", "tolerance"), [(F32, 1e-6), (F16, 1e-3)])
def test_by_hand(type_: Op, values: list[float], expected: list[float], operand: T, tolerance: float) -> None:
    actual = run_one(type_, operand, values)
    np.testing.assert_allclose(actual, expected, rtol=tolerance)
    zeros = np.equal(expected, 0)
    np.testing.assert_array_equal(np.signbit(actual)[zeros], np.signbit(expected)[zeros])


def test_float16_are_computed_as_float32() -> None:
    # in float16 sqrt(17) would be rounded to 4.125, whose reciprocal is different
    assert run_one(Op.RSQRT, F16, [17]) == [np.float16(17**-0.5)]
    assert np.float16(17**-0.5) != np.float16(1 / 4.125)
    assert run_one(Op.EXP, F16, [12]) == [INF]


def test_integers() -> None:
    assert run_one(Op.ABS, I32, [-5, 5, 0, LOWEST, LOWEST + 1]) == [5, 5, 0, LOWEST, 2**31 - 1]
    assert run_one(Op.NEG, I32, [-5, 5, 0, LOWEST]) == [5, -5, 0, LOWEST]


@pytest.mark.parametrize(("operand", "shift"), [(U8, 0), (I8, -128)])
def test_quantized_rsqrt(operand: T, shift: int) -> None:
    values = np.array([11, 14, 26, 110, 10, 9, 0]) + shift  # 1, 4, 16, 100, then 0 and negative values
    inputs = [(tensor(operand, (7,), 1, 10 + shift), values)]
    # 1, 0.5, 0.25 and 0.1 in steps of 0.1: 2.5 is a tie, rounded away from zero before the zero point is added
    expected = np.array([17, 12, 10, 8, 255, 255, 255]) + shift
    assert run(Op.RSQRT, inputs, [tensor(operand, (), 0.1, 7 + shift)])[0].tolist() == expected.tolist()


@pytest.mark.parametrize("type_", UNARY)
def test_empty_input_fails_the_run(type_: Op) -> None:
    with pytest.raises(HalError, match="input has no elements") as error:
        run_kernel(type_, [(tensor(F32), np.zeros((0, 2)))], [tensor(F32)])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


def test_only_floor_limits_the_rank() -> None:
    values = np.ones((1, 1, 1, 1, 2))
    assert run(Op.SQRT, [(tensor(F32, values.shape), values)], [tensor(F32)])[0].shape == values.shape
    with pytest.raises(HalError, match="input has rank 5; it must be at most 4") as error:
        run(Op.FLOOR, [(tensor(F32), values)], [tensor(F32)])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


@pytest.mark.parametrize("type_", UNARY)
@settings(max_examples=15, deadline=None)
@given(array_shapes(max_dims=4, max_side=5), st.integers(0, 2**32 - 1))
def test_agrees_with_litert(type_: Op, shape: tuple[int, ...], seed: int) -> None:
    operand = tensor(F32, shape)
    values = sample(np.random.default_rng(seed), operand) * np.float32(10)
    if type_ in (Op.LOG, Op.RSQRT, Op.SQRT):
        values = np.abs(values)
    theirs = litert(type_.name, None, [(operand, values)], [operand])[0]
    np.testing.assert_allclose(run(type_, [(operand, values)], [operand])[0], theirs, rtol=1e-5, atol=1e-6)
