"""Activations except SOFTMAX on CpuRef: cases computed by hand, and comparison with LiteRT."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, broadcastable_shapes

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert
from tests.driver.one_operation import Value, float32, run, run_kernel, sample, tensor

pytestmark = pytest.mark.filterwarnings("error")

F32, F16 = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16
U8, I8 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
FLT_MAX = float(np.finfo(np.float32).max)
NAN, INF = float("nan"), float("inf")
QUANT8 = pytest.mark.parametrize(("type_", "shift"), [(U8, 0), (I8, -128)])


def of(type_: T, values: object, scale: float = 0, zero_point: int = 0) -> Value:
    return tensor(type_, np.shape(np.asarray(values)), scale, zero_point), values


def float16(value: float) -> Value:
    return Operand(T.FLOAT16), value


def run_one(type_: Op, *inputs: Value, scale: float = 0, zero_point: int = 0) -> list[Any]:
    """Return the output, of the type of the first input, as a list."""
    actual: list[Any] = run(type_, inputs, [tensor(T(inputs[0][0].type), (), scale, zero_point)])[0].tolist()
    return actual


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (Op.RELU, [0, 0, 0.5, 9, FLT_MAX, 0, 0]),
        (Op.RELU1, [-1, -0.5, 0.5, 1, 1, -1, -1]),
        (Op.RELU6, [0, 0, 0.5, 6, 6, 0, 0]),
    ],
)
def test_relus_of_floats(type_: Op, expected: list[float]) -> None:
    values = [-9, -0.5, 0.5, 9, INF, -INF, NAN]
    assert run_one(type_, of(F32, values)) == expected
    assert run_one(type_, of(F16, values)) == [INF if value == FLT_MAX else value for value in expected]


@QUANT8
def test_relus_clamp_stored_values(type_: T, shift: int) -> None:
    values = of(type_, np.array([0, 97, 100, 103, 113, 255]) + shift, 0.4, 100 + shift)
    expected = {
        Op.RELU: [100, 100, 100, 103, 113, 255],
        Op.RELU1: [97, 97, 100, 103, 103, 103],  # 1 / 0.4 = 2.5 steps, rounded away from zero
        Op.RELU6: [100, 100, 100, 103, 113, 115],
    }
    for operation, stored in expected.items():
        assert run_one(operation, values, scale=0.4, zero_point=100 + shift) == [value + shift for value in stored]


def test_logistic_and_tanh_of_floats() -> None:
    values = [0, 1, -1, 200, -200, NAN]
    sigmoid = 1 / (1 + math.exp(-1))
    logistic = [0.5, sigmoid, 1 - sigmoid, 1, 0, NAN]
    tanh = [0, math.tanh(1), -math.tanh(1), 1, -1, NAN]
    for type_, tolerance in ((F32, 1e-6), (F16, 1e-3)):
        np.testing.assert_allclose(run_one(Op.LOGISTIC, of(type_, values)), logistic, rtol=tolerance)
        np.testing.assert_allclose(run_one(Op.TANH, of(type_, values)), tanh, rtol=tolerance)


@QUANT8
def test_logistic_and_tanh_of_stored_values(type_: T, shift: int) -> None:
    values = np.array([0, 1, 2, 127]) + shift
    actual = run_one(Op.LOGISTIC, of(type_, values, 0.5, shift), scale=1 / 256, zero_point=shift)
    assert actual == (np.array([128, 159, 187, 255]) + shift).tolist()  # the operation file's check values
    # from 15 / 0.5 = 30 steps from the zero point the result is 0 or 255
    values = np.array([98, 99, 128, 129, 157, 158]) + shift
    actual = run_one(Op.LOGISTIC, of(type_, values, 0.5, 128 + shift), scale=1 / 256, zero_point=shift)
    assert actual == (np.array([0, 0, 128, 159, 255, 255]) + shift).tolist()
    actual = run_one(Op.TANH, of(type_, values, 0.5, 128 + shift), scale=1 / 128, zero_point=128 + shift)
    # tanh(0.5) * 128 = 59.15
    assert actual == (np.array([0, 0, 128, 187, 255, 255]) + shift).tolist()


@QUANT8
@pytest.mark.parametrize("scale", [0.003, 0.05, 0.7, 3, 1e9])
def test_stored_sigmoids_are_near_the_real_ones(type_: T, shift: int, scale: float) -> None:
    zero_point = 77 + shift
    stored = np.arange(256) + shift
    real = (stored - zero_point) * scale
    values = of(type_, stored, scale, zero_point)
    logistic = run_one(Op.LOGISTIC, values, scale=1 / 256, zero_point=shift)
    tanh = run_one(Op.TANH, values, scale=1 / 128, zero_point=128 + shift)
    known = stored != zero_point if scale == 1e9 else stored > -999  # with such a scale even 0 saturates
    expected = np.clip(256 / (1 + np.exp(-np.clip(real, -50, 50))), 0, 255) + shift
    assert np.abs(logistic - expected)[known].max() <= 1
    expected = np.clip(128 * np.tanh(real) + 128, 0, 255) + shift
    assert np.abs(tanh - expected)[known].max() <= 1


def test_elu_by_its_formula() -> None:
    e1 = math.exp(-1) - 1
    for type_, alpha, tolerance in ((F32, float32, 1e-6), (F16, float16, 1e-3)):
        actual = run_one(Op.ELU, of(type_, [2, -1, 0, NAN, -INF]), alpha(0.5))
        np.testing.assert_allclose(actual, [2, 0.5 * e1, 0, 0, -0.5], rtol=tolerance)
        actual = run_one(Op.ELU, of(type_, [1, -1]), alpha(-0.5))
        np.testing.assert_allclose(actual, [1 - 0.5 * (math.e - 1), 0], rtol=tolerance)


def test_hard_swish_of_floats() -> None:
    values, expected = [-4, -3, -1, 0, 1, 3, 4, NAN], [0, 0, -1 / 3, 0, 2 / 3, 3, 4, NAN]
    np.testing.assert_allclose(run_one(Op.HARD_SWISH, of(F32, values)), expected, rtol=1e-6)
    np.testing.assert_allclose(run_one(Op.HARD_SWISH, of(F16, values)), expected, rtol=1e-3)


@QUANT8
@pytest.mark.parametrize("scale", [0.001, 0.005, 3 / 256, 0.1, 1])
def test_stored_hard_swish_is_near_the_real_one(type_: T, shift: int, scale: float) -> None:
    stored = np.arange(256) + shift
    real = (stored - 90 - shift) * scale
    actual = run_one(Op.HARD_SWISH, of(type_, stored, scale, 90 + shift), scale=2 * scale, zero_point=60 + shift)
    expected = np.clip(real * np.clip(real + 3, 0, 6) / 6 / (2 * scale) + 60, 0, 255) + shift
    assert np.abs(actual - expected).max() <= 1


def test_extreme_scales_saturate() -> None:
    values = [1, 3, 200]  # below zero, zero, above
    for type_ in (Op.RELU, Op.RELU1, Op.RELU6):
        assert run_one(type_, of(U8, values, 1e-40, 3), scale=1e-40, zero_point=3) == [
            3 if type_ != Op.RELU1 else 1,
            3,
            200,
        ]
    for scale in (1e3, 1e8, 1e30):
        assert run_one(Op.HARD_SWISH, of(U8, values, scale, 3), scale=scale, zero_point=3) == [3, 3, 200]
        slope = of(U8, [4], scale, 3)
        assert run_one(Op.PRELU, of(U8, values, scale, 3), slope, scale=1e-40, zero_point=3) == [0, 3, 255]


def test_prelu_of_floats() -> None:
    x, alpha = of(F32, [[2, -2], [NAN, -0.0]]), of(F32, [0.5, 3])
    np.testing.assert_array_equal(run_one(Op.PRELU, x, alpha), [[2, -6], [NAN, -0.0]])
    assert run_one(Op.PRELU, of(F32, [0, -0.0]), of(F32, [INF])) == [0, 0]
    assert run_one(Op.PRELU, of(F16, [-60000, 3]), of(F16, [2, 2])) == [-INF, 3]
    assert run_one(Op.PRELU, of(F32, [-1]), of(F32, [[1], [2]])) == [[-1], [-2]]


@QUANT8
def test_prelu_of_stored_values(type_: T, shift: int) -> None:
    x = of(type_, np.array([13, 11, 10, 7, 0]) + shift, 0.5, 10 + shift)  # 1.5, 0.5, 0, -1.5, -5
    alpha = of(type_, [6 + shift], 0.25, 4 + shift)  # 0.5
    actual = run_one(Op.PRELU, x, alpha, scale=1, zero_point=2 + shift)
    # 1.5 and 0.5 are ties, away from zero; -0.75; -2.5 is a tie and saturates
    assert actual == (np.array([4, 3, 2, 1, 0]) + shift).tolist()


GENERAL = ErrorStatus.GENERAL_FAILURE
F, QUANT = of(F32, [1, 2]), of(U8, [1, 2], 0.5, 3)
HIGH: Value = tensor(F32), np.ones((1, 1, 1, 1, 2))
OUT = tensor(F32)
WRONG: list[tuple[Op, list[Value], Operand, str]] = [
    *(
        (type_, [HIGH], OUT, "input has rank 5; it must be at most 4")
        for type_ in (Op.RELU, Op.RELU1, Op.RELU6, Op.LOGISTIC, Op.TANH)
    ),
    *((type_, [QUANT], tensor(U8, (), 0.5, 4), "zero point 4; input has 0.5, 3") for type_ in (Op.RELU, Op.RELU6)),
    (Op.LOGISTIC, [QUANT], tensor(U8, (), 1 / 256, 1), "output has scale 0.00390625, zero point 1"),
    (Op.LOGISTIC, [of(I8, [1], 1)], tensor(I8, (), 1 / 256), "it must have 0.00390625, -128"),
    (Op.LOGISTIC, [of(U8, [1], 2**-27)], tensor(U8, (), 1 / 256), r"must be greater than 2\^-27"),
    (Op.TANH, [QUANT], tensor(U8, (), 1 / 128), "it must have 0.0078125, 128"),
    (Op.TANH, [of(I8, [1], 1)], tensor(I8, (), 1 / 128, 1), "it must have 0.0078125, 0"),
    (Op.HARD_SWISH, [of(U8, [1], 1)], tensor(U8, (), 1 / 128), r"input scale / 128 / output scale is 1; .* below 1"),
    (Op.PRELU, [F, of(F32, [1, 2, 3])], OUT, r"input \[2\] and alpha \[3\] cannot be broadcast"),
]


@pytest.mark.parametrize(("type_", "inputs", "output", "message"), WRONG)
def test_broken_constraints(type_: Op, inputs: list[Value], output: Operand, message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, inputs, [output])
    assert error.value.status == GENERAL


def test_empty_tensors() -> None:
    for type_ in (Op.RELU, Op.RELU1, Op.RELU6, Op.LOGISTIC, Op.TANH, Op.HARD_SWISH):
        assert run_kernel(type_, [(OUT, np.zeros((0, 2)))], [OUT])[0].shape == (0, 2)
    empty = tensor(U8, (), 0.5, 3), np.zeros((0, 2))
    assert run_kernel(Op.LOGISTIC, [empty], [tensor(U8, (), 1 / 256)])[0].shape == (0, 2)
    rest: list[tuple[Op, list[Value]]] = [
        (Op.ELU, [float32(1)]),
        (Op.PRELU, [F]),
    ]
    for type_, more in rest:
        with pytest.raises(HalError, match="has no elements") as error:
            run_kernel(type_, [(OUT, np.zeros((0, 2))), *more], [OUT])
        assert error.value.status == GENERAL


SHAPES = array_shapes(max_dims=4, max_side=5)
SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)
LITERT = {Op.RELU1: "RELU_N1_TO_1"}
FIXED = {Op.LOGISTIC: (1 / 256, -128), Op.TANH: (1 / 128, 0)}


@pytest.mark.parametrize("type_", [Op.RELU, Op.RELU1, Op.RELU6, Op.LOGISTIC, Op.TANH, Op.HARD_SWISH])
@settings(max_examples=12, deadline=None)
@given(SHAPES, SEEDS)
def test_floats_agree_with_litert(type_: Op, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    operand = tensor(F32, shape)
    values = sample(rng, operand) * np.float32(4)
    theirs = litert(LITERT.get(type_, type_.name), None, [(operand, values)], [operand])[0]
    np.testing.assert_allclose(run(type_, [(operand, values)], [operand])[0], theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type_", [Op.RELU, Op.RELU1, Op.RELU6, Op.LOGISTIC, Op.TANH, Op.HARD_SWISH])
@settings(max_examples=12, deadline=None)
@given(SEEDS)
def test_stored_values_agree_with_litert(type_: Op, rng: np.random.Generator) -> None:
    operand = tensor(I8, (256,), float(rng.uniform(0.005, 0.2)), int(rng.integers(-128, 128)))
    output = operand
    if type_ in FIXED:
        output = tensor(I8, (256,), *FIXED[type_])
    elif type_ == Op.HARD_SWISH:
        output = tensor(I8, (256,), operand.scale * float(rng.uniform(0.3, 3)), int(rng.integers(-128, 128)))
    values = np.arange(-128, 128).astype(np.int8)
    ours = run(type_, [(operand, values)], [output])[0].astype(int)
    theirs = litert(LITERT.get(type_, type_.name), None, [(operand, values)], [output])[0].astype(int)
    # LiteRT computes 8-bit LOGISTIC and TANH by a table of float results
    assert np.abs(ours - theirs).max() <= (1 if type_ in FIXED else 0)


@settings(max_examples=25, deadline=None)
@given(st.data(), SHAPES, SEEDS, st.sampled_from([F32, U8, I8]))
def test_prelu_agrees_with_litert(
    data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, type_: T
) -> None:
    slopes = data.draw(broadcastable_shapes(shape, min_dims=1, max_dims=len(shape), max_side=5))
    slopes = tuple(min(sizes) for sizes in zip(slopes, shape[len(shape) - len(slopes) :], strict=True))
    low = -128 if type_ == I8 else 0
    operands = [
        tensor(type_, each, *((rng.uniform(0.01, 0.5), int(rng.integers(256)) + low) if type_ != F32 else ()))
        for each in (shape, slopes, shape)
    ]
    inputs = [(operand, sample(rng, operand)) for operand in operands[:2]]
    ours, theirs = run(Op.PRELU, inputs, operands[2:])[0], litert("PRELU", None, inputs, operands[2:])[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=0)
