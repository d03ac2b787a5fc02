"""Comparisons on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import BroadcastableShapes, mutually_broadcastable_shapes

from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert
from tests.driver.one_operation import Value, run, run_kernel, sample, tensor

pytestmark = pytest.mark.filterwarnings("error")

F32, F16, I32, BOOL = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_INT32, T.TENSOR_BOOL8
U8, I8 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
OUT = tensor(BOOL)
COMPARISONS = [Op.EQUAL, Op.NOT_EQUAL, Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL]
NAN = float("nan")


def of(type_: T, values: object, scale: float = 0, zero_point: int = 0) -> Value:
    return tensor(type_, np.shape(np.asarray(values)), scale, zero_point), values


def compare(x: Value, y: Value) -> dict[str, list[int]]:
    """Return the result of each comparison for each pair, by the operation's name."""
    actual = {type_.name: run(type_, [x, y], [OUT])[0] for type_ in COMPARISONS}
    assert all(array.dtype == np.bool_ for array in actual.values())
    return {name: array.astype(int).ravel().tolist() for name, array in actual.items()}


def table(equal: list[int], less: list[int]) -> dict[str, list[int]]:
    """Return the results of all six comparisons for ordered values."""
    e, lt = np.array(equal), np.array(less)
    answers = (e, 1 - e, lt, lt | e, (1 - lt) & (1 - e), 1 - lt)
    return {type_.name: answer.tolist() for type_, answer in zip(COMPARISONS, answers, strict=True)}


@pytest.mark.parametrize("type_", [F32, F16, I32])
def test_numbers(type_: T) -> None:
    assert compare(of(type_, [[1], [2], [3]]), of(type_, [2])) == table([0, 1, 0], [1, 0, 0])


def test_large_integers_are_not_compared_as_floats() -> None:
    a, b = of(I32, [2**31 - 1, -(2**31)], 0.5), of(I32, [2**31 - 2, -(2**31) + 1])  # the scale is ignored
    assert compare(a, b) == table([0, 0], [0, 1])


@pytest.mark.parametrize("type_", [F32, F16])
def test_nan_is_unequal_and_zeros_are_equal(type_: T) -> None:
    actual = compare(of(type_, [NAN, 1, NAN, 0.0]), of(type_, [1, NAN, NAN, -0.0]))
    assert actual.pop("NOT_EQUAL") == [1, 1, 1, 0]
    zeros = {name: int(name in ("EQUAL", "LESS_EQUAL", "GREATER_EQUAL")) for name in actual}
    assert actual == {name: [0, 0, 0, zero] for name, zero in zeros.items()}


@pytest.mark.parametrize(("type_", "shift"), [(U8, 0), (I8, -128)])
def test_quantized_values_are_compared_as_reals(type_: T, shift: int) -> None:
    x = of(type_, np.array([4, 5, 6, 0]) + shift, 0.5, 2 + shift)  # 1, 1.5, 2, -1
    y = of(type_, np.array([14, 15, 15, 6]) + shift, 0.25, 8 + shift)  # 1.5, 1.75, 1.75, -0.5
    assert compare(x, y) == table([0, 0, 0, 0], [1, 1, 0, 1])
    assert compare(x, of(type_, np.array([12, 14, 16, 4]) + shift, 0.25, 8 + shift)) == table([1] * 4, [0] * 4)


def test_booleans_are_compared_as_bytes() -> None:
    x, y = (np.array(raw, np.uint8).view(np.bool_) for raw in ([0, 1, 1, 1, 3], [1, 1, 0, 2, 2]))
    expected = table([0, 1, 0, 0, 0], [1, 0, 0, 1, 0])
    for type_ in COMPARISONS:
        actual = run_kernel(type_, [(tensor(BOOL, (5,)), x), (tensor(BOOL, (5,)), y)], [OUT])[0]
        assert actual.view(np.uint8).tolist() == expected[type_.name]


@pytest.mark.parametrize("type_", COMPARISONS)
def test_broken_constraints(type_: Op) -> None:
    with pytest.raises(HalError, match=r"x \[2\] and y \[3\] cannot be broadcast") as error:
        run(type_, [of(F32, [1, 2]), of(F32, [1, 2, 3])], [OUT])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE
    with pytest.raises(HalError, match="y has no elements") as error:
        run_kernel(type_, [of(F32, [1]), (tensor(F32), np.zeros((0,)))], [OUT])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


SHAPES = mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, min_side=1, max_side=4)
SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@pytest.mark.parametrize("type_", COMPARISONS)
@settings(max_examples=15, deadline=None)
@given(SHAPES, SEEDS, st.sampled_from([F32, I32, U8, I8]))
def test_agrees_with_litert(type_: Op, shapes: BroadcastableShapes, rng: np.random.Generator, kind: T) -> None:
    # scales that are powers of two: LiteRT compares quantized values by an integer rescale, exact for them
    quantized = [(0.5, 3), (0.25, 40)] if kind in (U8, I8) else [(0.0, 0)] * 2
    operands = [tensor(kind, shape, *quant) for shape, quant in zip(shapes.input_shapes, quantized, strict=True)]
    inputs = [(operand, sample(rng, operand)) for operand in operands]
    output = tensor(BOOL, shapes.result_shape)
    np.testing.assert_array_equal(run(type_, inputs, [output])[0], litert(type_.name, None, inputs, [output])[0])
