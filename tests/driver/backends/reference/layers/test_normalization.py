"""Normalization operations on CpuRef: cases computed by hand, and comparison with LiteRT."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, boolean, float32, int32, run, run_kernel, sample, tensor

F32 = T.TENSOR_FLOAT32
UINT8, INT8 = tensor(T.TENSOR_QUANT8_ASYMM, (), 1 / 128, 128), tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (), 1 / 128, 0)
THREE = [float32(1), float32(1), float32(1)]


def row(*values: float) -> Value:
    return tensor(F32, (len(values),)), values


def stored(type_: T, *values: int) -> Value:
    """Return a row of stored values with zero point 10."""
    return tensor(type_, (1, len(values)), 0.3, 10), [values]


def test_l2_along_an_axis_by_hand() -> None:
    image = tensor(F32, (2, 2)), [[3, 0], [-4, 0]]
    out = run(Op.L2_NORMALIZATION, [image, int32(0)], [tensor(F32)])[0]
    np.testing.assert_allclose(out, [[0.6, 0], [-0.8, 0]], rtol=1e-6)  # a row of zeros stays zero
    out = run(Op.L2_NORMALIZATION, [image], [tensor(F32)])[0]
    np.testing.assert_allclose(out, [[1, 0], [-1, 0]], rtol=1e-6)


@pytest.mark.parametrize(("type_", "output"), [(T.TENSOR_QUANT8_ASYMM, UINT8), (T.TENSOR_QUANT8_ASYMM_SIGNED, INT8)])
def test_quantized_l2_by_hand(type_: T, output: Operand) -> None:
    # differences to the zero point 3, 4, 0: 0.6 * 128 = 76.8, 0.8 * 128 = 102.4
    out = run(Op.L2_NORMALIZATION, [stored(type_, 13, 14, 10)], [output])[0]
    assert (out - float(output.zero_point)).tolist() == [[77, 102, 0]]
    # 1 is stored as 128, which saturates in the signed type; -1 is representable
    out = run(Op.L2_NORMALIZATION, [stored(type_, 13, 10)], [output])[0]
    assert out.tolist() == [[min(128 + output.zero_point, 255 if output is UINT8 else 127), output.zero_point]]
    out = run(Op.L2_NORMALIZATION, [stored(type_, 7, 10)], [output])[0]
    assert out.tolist() == [[output.zero_point - 128, output.zero_point]]
    assert run(Op.L2_NORMALIZATION, [stored(type_, 10, 10)], [output])[0].tolist() == [[output.zero_point] * 2]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200_000), st.integers(0, 2**32 - 1))
def test_quantized_l2_is_the_float_one_within_a_step(length: int, seed: int) -> None:
    operand = tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (length, 2), 0.3, 10)
    value = sample(np.random.default_rng(seed), operand)
    real = value - 10.0
    expected = np.clip(128 * real / np.maximum(np.sqrt(np.square(real).sum(axis=0)), 1e-6), -128, 127)
    out = run(Op.L2_NORMALIZATION, [(operand, value), int32(0)], [INT8])[0]
    assert np.abs(out - expected).max() < 0.6


def test_local_response_by_hand() -> None:
    scalars = [float32(4), float32(2), float32(0.5)]
    out = run(Op.LOCAL_RESPONSE_NORMALIZATION, [row(1, 2, -3), int32(1), *scalars], [tensor(F32)])[0]
    expected = [1 / sqrt(4 + 2 * (1 + 4)), 2 / sqrt(4 + 2 * (1 + 4 + 9)), -3 / sqrt(4 + 2 * (4 + 9))]
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    # a radius longer than the axis includes all elements
    out = run(Op.LOCAL_RESPONSE_NORMALIZATION, [row(1, 2), int32(2**31 - 1), *scalars], [tensor(F32)])[0]
    np.testing.assert_allclose(out, [1 / sqrt(4 + 2 * 5), 2 / sqrt(4 + 2 * 5)], rtol=1e-6)


def test_local_response_along_an_axis_is_transposed() -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((5, 3, 2)).astype(np.float32)
    rest = [int32(1), float32(1), float32(0.5), float32(0.7)]
    last = run(Op.LOCAL_RESPONSE_NORMALIZATION, [(tensor(F32, (5, 3, 2)), data), *rest], [tensor(F32)])[0]
    turned = tensor(F32, (2, 5, 3)), data.transpose(2, 0, 1)
    first = run(Op.LOCAL_RESPONSE_NORMALIZATION, [turned, *rest, int32(-3)], [tensor(F32)])[0]
    np.testing.assert_array_equal(first, last.transpose(2, 0, 1))


def test_instance_normalization_by_hand() -> None:
    # channel 0: 1, 3 (mean 2, variance 1); channel 1: 8, 12 (mean 10, variance 4)
    image = tensor(F32, (1, 2, 1, 2)), [[[[1, 8]], [[3, 12]]]]
    inputs = [image, float32(2), float32(10), float32(3), boolean(False)]
    out = run(Op.INSTANCE_NORMALIZATION, inputs, [tensor(F32)])[0]
    a, b = 2 / sqrt(1 + 3), 4 / sqrt(4 + 3)
    np.testing.assert_allclose(out.ravel(), [10 - a, 10 - b, 10 + a, 10 + b], rtol=1e-6)
    turned = tensor(F32, (1, 2, 2, 1)), [[[[1], [3]], [[8], [12]]]]
    out = run(Op.INSTANCE_NORMALIZATION, [turned, *inputs[1:4], boolean(True)], [tensor(F32)])[0]
    np.testing.assert_allclose(out.ravel(), [10 - a, 10 + a, 10 - b, 10 + b], rtol=1e-6)


@pytest.mark.parametrize(
    ("type_", "inputs", "output", "message"),
    [
        (Op.L2_NORMALIZATION, [row(1, 2), int32(1)], tensor(F32), "axis is 1"),
        (Op.L2_NORMALIZATION, [stored(T.TENSOR_QUANT8_ASYMM, 1)], tensor(T.TENSOR_QUANT8_ASYMM, (), 0.1, 128), "0.1"),
        (Op.LOCAL_RESPONSE_NORMALIZATION, [row(1), int32(-1), *THREE], tensor(F32), "radius is -1"),
        (Op.LOCAL_RESPONSE_NORMALIZATION, [row(1), int32(1), *THREE, int32(-2)], tensor(F32), "axis is -2"),
        (Op.INSTANCE_NORMALIZATION, [row(1), *THREE, boolean(False)], tensor(F32), "rank 1; it must be 4"),
    ],
)
def test_broken_constraint_fails_the_run(type_: Op, inputs: list[Value], output: Operand, message: str) -> None:
    with pytest.raises(HalError, match=message):
        run(type_, inputs, [output])


@pytest.mark.parametrize(
    ("type_", "rest"),
    [
        (Op.L2_NORMALIZATION, []),
        (Op.LOCAL_RESPONSE_NORMALIZATION, [int32(1), *THREE]),
        (Op.INSTANCE_NORMALIZATION, [*THREE, boolean(False)]),
    ],
)
def test_empty_inputs_fail_the_run(type_: Op, rest: list[Value]) -> None:
    with pytest.raises(HalError, match="input has no elements"):
        run_kernel(type_, [(tensor(F32), np.zeros((0, 2, 2, 2))), *rest], [tensor(F32)])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.booleans(), st.integers(0, 2**32 - 1))
def test_l2_agrees_with_litert(shape: list[int], quantized: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    output = tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, shape, 1 / 128) if quantized else tensor(F32, shape)
    zero_point = int(rng.integers(-128, 128)) if quantized else 0
    operand = tensor(T(output.type), shape, 0.2 if quantized else 0, zero_point)
    value = sample(rng, operand)
    ours = run(Op.L2_NORMALIZATION, [(operand, value)], [output])[0]
    theirs = litert("L2_NORMALIZATION", schema().L2NormOptionsT(), [(operand, value)], [output])[0]
    if quantized:
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10), st.sampled_from([0.5, 1, 0.3]), st.integers(0, 2**32 - 1))
def test_local_response_is_the_sum_term_by_term(size: int, radius: int, beta: float, seed: int) -> None:
    """Compare with a plain sum: the window of LiteRT's reference kernel is one element too short."""
    x = sample(np.random.default_rng(seed), tensor(F32, (size,)))
    sums = [sum(float(x[c]) ** 2 for c in range(size) if abs(c - d) <= radius) for d in range(size)]
    expected = [value * (1.5 + 0.25 * total) ** -beta for value, total in zip(x, sums, strict=True)]
    inputs = [row(*x), int32(radius), float32(1.5), float32(0.25), float32(beta)]
    out = run(Op.LOCAL_RESPONSE_NORMALIZATION, inputs, [tensor(F32)])[0]
    np.testing.assert_allclose(out, expected, rtol=1e-5)
