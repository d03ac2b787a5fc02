"""SOFTMAX and LOG_SOFTMAX on CpuRef: cases computed by hand, and comparison with LiteRT."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, float32, int32, run, run_kernel, sample, tensor

pytestmark = pytest.mark.filterwarnings("error")

F32, F16 = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16
U8, I8 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
NAN = float("nan")


def of(type_: T, values: object, scale: float = 0, zero_point: int = 0) -> Value:
    return tensor(type_, np.shape(np.asarray(values)), scale, zero_point), values


def float16(value: float) -> Value:
    return Operand(T.FLOAT16), value


def run_one(type_: Op, *inputs: Value, scale: float = 0, zero_point: int = 0) -> list[Any]:
    """Return the output, of the type of the first input, as a list."""
    actual: list[Any] = run(type_, inputs, [tensor(T(inputs[0][0].type), (), scale, zero_point)])[0].tolist()
    return actual


def test_softmax_of_floats() -> None:
    out = run_one(Op.SOFTMAX, of(F32, [[0, 0], [1, 3], [1e30, -1e30]]), float32(0.5))
    share = 1 / (1 + math.exp(1))
    np.testing.assert_allclose(out, np.array([[0.5, 0.5], [share, 1 - share], [1, 0]]), rtol=1e-6)
    actual = run_one(Op.SOFTMAX, of(F16, [[0, 2], [0, 0]]), float16(0.5), int32(-2))
    np.testing.assert_allclose(actual, [[0.5, 1 - share], [0.5, share]], rtol=1e-3)
    assert run_kernel(Op.SOFTMAX, [(tensor(F32), np.zeros((0, 2))), float32(1)], [tensor(F32)])[0].shape == (0, 2)


@pytest.mark.parametrize(("type_", "shift"), [(U8, 0), (I8, -128)])
def test_softmax_of_stored_values(type_: T, shift: int) -> None:
    values = of(type_, np.array([1, 2, 10, 20]) + shift, 0.5, shift)
    actual = run_one(Op.SOFTMAX, values, float32(1e-5), scale=1 / 256, zero_point=shift)
    assert actual == [64 + shift] * 4  # the operation file's check value


def test_log_softmax() -> None:
    total = math.log(1 + math.exp(-2))
    expected = np.array([[-total, -2 - total], [-math.log(2)] * 2])
    for type_, beta, tolerance in ((F32, float32, 1e-6), (F16, float16, 1e-3)):
        actual = run_one(Op.LOG_SOFTMAX, of(type_, [[5, 4], [-1, -1]]), beta(2), int32(-1))
        np.testing.assert_allclose(actual, expected, atol=tolerance)
        actual = run_one(Op.LOG_SOFTMAX, of(type_, [[5, -1], [4, -1]]), beta(2), int32(0))
        np.testing.assert_allclose(actual, expected.T, atol=tolerance)
    np.testing.assert_array_equal(run_one(Op.LOG_SOFTMAX, of(F32, [1, NAN, 2]), float32(1), int32(0)), [NAN] * 3)


def test_log_softmax_of_float16_sums_in_half_precision() -> None:
    # 2048 + 1 is 2048 in float16
    actual = run_one(Op.LOG_SOFTMAX, of(F16, np.zeros(3000)), float16(1), int32(0))
    assert actual == [-np.float16(math.log(2048))] * 3000


F, QUANT, OUT = of(F32, [1, 2]), of(U8, [1, 2], 0.5, 3), tensor(F32)
WRONG: list[tuple[Op, list[Value], Operand, str]] = [
    (Op.SOFTMAX, [(OUT, np.ones((1, 1, 1, 1, 2))), float32(1)], OUT, "input has rank 5; it must be at most 4"),
    (Op.SOFTMAX, [F, float32(0)], OUT, "beta is 0; it must be > 0"),
    (Op.SOFTMAX, [F, float32(1), int32(1)], OUT, r"axis is 1; it must be in -1\.\.0"),
    (Op.SOFTMAX, [QUANT, float32(1)], tensor(U8, (), 1 / 256, 1), "it must have 0.00390625, 0"),
    (Op.SOFTMAX, [QUANT, float32(1e-9)], tensor(U8, (), 1 / 256), r"beta \* input scale is too small"),
    (Op.LOG_SOFTMAX, [F, float32(1), int32(-2)], OUT, r"axis is -2; it must be in -1\.\.0"),
    (Op.LOG_SOFTMAX, [(OUT, np.zeros((0, 2))), float32(1), int32(0)], OUT, "logits has no elements"),
]


@pytest.mark.parametrize(("type_", "inputs", "output", "message"), WRONG)
def test_broken_constraints(type_: Op, inputs: list[Value], output: Operand, message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run_kernel(type_, inputs, [output])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


@settings(max_examples=25, deadline=None)
@given(array_shapes(max_dims=4, max_side=5), st.integers(0, 2**32 - 1), st.floats(0.1, 2))
def test_softmaxes_agree_with_litert(shape: tuple[int, ...], seed: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    operand = tensor(F32, shape)
    values = sample(rng, operand) * np.float32(3)
    options = schema().SoftmaxOptionsT()
    options.beta = beta
    theirs = litert("SOFTMAX", options, [(operand, values)], [operand])[0]
    ours = run(Op.SOFTMAX, [(operand, values), float32(beta)], [operand])[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    theirs = litert("LOG_SOFTMAX", None, [(operand, values)], [operand])[0]
    ours = run(Op.LOG_SOFTMAX, [(operand, values), float32(1), int32(-1)], [operand])[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)

    stored, output = tensor(I8, shape, 0.1, 5), tensor(I8, shape, 1 / 256, -128)
    integers = sample(rng, stored)
    mine = run(Op.SOFTMAX, [(stored, integers), float32(beta)], [output])[0].astype(int)
    assert np.abs(mine - litert("SOFTMAX", options, [(stored, integers)], [output])[0]).max() <= 1
