"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM and POW on CpuRef: cases computed by hand, and comparison with LiteRT."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import BroadcastableShapes, mutually_broadcastable_shapes

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, int32, run, run_kernel, sample, tensor

pytestmark = pytest.mark.filterwarnings("error")

F32, F16, I32 = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_INT32
U8, I8 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
NONE, RELU, RELU1, RELU6 = (int32(code) for code in range(4))
FLT_MAX, LOWEST = float(np.finfo(np.float32).max), -(2**31)
NAN, INF = float("nan"), float("inf")


def of(type_: T, values: object, scale: float = 0, zero_point: int = 0) -> Value:
    return tensor(type_, np.shape(np.asarray(values)), scale, zero_point), values


def run_one(type_: Op, *inputs: Value, scale: float = 0, zero_point: int = 0) -> list[Any]:
    """Return the output, of the type of the first input, as a list."""
    kind = T(inputs[0][0].type)
    actual: list[Any] = run(type_, inputs, [tensor(kind, (), scale, zero_point)])[0].tolist()
    return actual


def test_sub_broadcasts() -> None:
    assert run_one(Op.SUB, of(F32, [[1], [2]]), of(F32, [10, 20, 0.5]), NONE) == [[-9, -19, 0.5], [-8, -18, 1.5]]
    assert run_one(Op.SUB, of(F32, [10, 20]), of(F32, [[[1]], [[2]]]), NONE) == [[[9, 19]], [[8, 18]]]


@pytest.mark.parametrize(
    ("type_", "expected"),
    [(Op.ADD, [6, 8, -2]), (Op.SUB, [4, -2, 0]), (Op.MUL, [5, 15, 1]), (Op.DIV, [5, 0.6000000238418579, 1])],
)
def test_floats_and_their_activations(type_: Op, expected: list[float]) -> None:
    values = of(F32, [5, 3, -1]), of(F32, [1, 5, -1])
    for activation, low, high in ((NONE, -99, 99), (RELU, 0, 99), (RELU1, -1, 1), (RELU6, 0, 6)):
        assert run_one(type_, *values, activation) == np.clip(expected, low, high).tolist()


def test_infinity_becomes_the_largest_float_and_nan_stays() -> None:
    assert run_one(Op.ADD, of(F32, [FLT_MAX, INF]), of(F32, [FLT_MAX, 1]), NONE) == [FLT_MAX, FLT_MAX]
    assert run_one(Op.SUB, of(F32, [-FLT_MAX]), of(F32, [FLT_MAX]), NONE) == [-FLT_MAX]
    assert run_one(Op.MUL, of(F32, [1e30, -1e30]), of(F32, [1e30, 1e30]), NONE) == [FLT_MAX, -FLT_MAX]
    assert run_one(Op.DIV, of(F32, [1, -1]), of(F32, [0, 0]), NONE) == [FLT_MAX, -FLT_MAX]
    assert run_one(Op.DIV, of(F32, [1, -1]), of(F32, [0, 0]), RELU6) == [6, 0]
    for type_, a, b in ((Op.ADD, INF, -INF), (Op.SUB, INF, INF), (Op.MUL, 0, INF), (Op.DIV, 0, 0)):
        assert np.isnan(run_one(type_, of(F32, [a]), of(F32, [b]), NONE)).all()


def test_float16_are_rounded_once() -> None:
    assert run_one(Op.MUL, of(F16, [300, 3]), of(F16, [300, 0.25]), NONE) == [INF, 0.75]
    # 2048 + 1 is a tie: to even
    assert run_one(Op.ADD, of(F16, [2048, 2050]), of(F16, [1, 1]), NONE) == [2048, 2052]


def test_integers_wrap() -> None:
    big = of(I32, [2**31 - 1], 0.5)  # a declared scale is ignored
    assert run_one(Op.ADD, big, of(I32, [1]), NONE, scale=0.25) == [LOWEST]
    assert run_one(Op.SUB, of(I32, [LOWEST]), of(I32, [1]), NONE) == [2**31 - 1]
    assert run_one(Op.MUL, big, of(I32, [2]), NONE, scale=0.1) == [-2]


def test_integer_division_rounds_down_and_never_fails() -> None:
    dividend = of(I32, [7, -7, 7, -7, -8, 5, -5, 0, LOWEST])
    divisor = of(I32, [2, 2, -2, -2, 2, 0, 0, 0, -1])
    assert run_one(Op.DIV, dividend, divisor, NONE) == [3, -4, -4, 3, -4, 0, 0, 0, LOWEST]


@pytest.mark.parametrize(("type_", "shift"), [(U8, 0), (I8, -128)])
def test_quantized_sums_and_products(type_: T, shift: int) -> None:
    a, b = of(type_, [20 + shift, 10 + shift], 0.5, 10 + shift), of(type_, [8 + shift, 9 + shift], 0.25, shift)
    # 5 - 2 and 0 - 2.25, in halves: 6 and -4.5, away from zero
    assert run_one(Op.SUB, a, b, NONE, scale=0.5, zero_point=100 + shift) == [106 + shift, 95 + shift]
    assert run_one(Op.SUB, a, b, RELU, scale=0.5, zero_point=100 + shift) == [106 + shift, 100 + shift]
    assert run_one(Op.SUB, a, b, RELU1, scale=0.5, zero_point=100 + shift) == [102 + shift, 98 + shift]
    assert run_one(Op.ADD, a, b, RELU6, scale=0.5, zero_point=100 + shift) == [112 + shift, 105 + shift]

    a = of(type_, [13 + shift, 7 + shift, 255 + shift], 0.5, 10 + shift)
    b = of(type_, [7 + shift], 0.5, 1 + shift)
    # 3 * 6 / 4 and -3 * 6 / 4 are ties, away from zero
    assert run_one(Op.MUL, a, b, NONE, scale=1, zero_point=5 + shift) == [10 + shift, shift, 255 + shift]


def test_maximum_and_minimum_give_input0_for_nan() -> None:
    a, b = of(F32, [NAN, 1, 3, -1]), of(F32, [2, NAN, 2, 4])
    np.testing.assert_array_equal(run_one(Op.MAXIMUM, a, b), [NAN, 1, 3, 4])
    np.testing.assert_array_equal(run_one(Op.MINIMUM, a, b), [NAN, 1, 2, -1])
    zeros = of(F32, [0.0, -0.0]), of(F32, [-0.0, 0.0])
    for type_ in (Op.MAXIMUM, Op.MINIMUM):
        assert np.signbit(run_one(type_, *zeros)).tolist() == [False, True]


def test_maximum_and_minimum_of_other_types() -> None:
    assert run_one(Op.MAXIMUM, of(I32, [[1], [5]], 0.5), of(I32, [2, 7])) == [[2, 7], [5, 7]]
    assert run_one(Op.MINIMUM, of(F16, [1.5, -2]), of(F16, [1])) == [1, -2]
    a, b = of(U8, [4, 250, 0], 0.5, 2), of(U8, [10, 10, 9], 0.25, 4)
    # reals 1, 124, -1 and 1.5, 1.5, 1.25; 1.25 / 0.5 + 1 is a tie, away from zero
    assert run_one(Op.MAXIMUM, a, b, scale=0.5, zero_point=1) == [4, 249, 4]
    assert run_one(Op.MINIMUM, a, b, scale=0.5, zero_point=1) == [3, 4, 0]
    a, b = of(I8, [-128, 127], 1, 0), of(I8, [0, 0], 1, 1)
    assert run_one(Op.MINIMUM, a, b, scale=2, zero_point=1) == [-63, 1]  # -128 / 2 + 1; -1 / 2 + 1 is a tie
    assert run_one(Op.MAXIMUM, a, b, scale=2, zero_point=-100) == [-101, -37]  # -100.5 and -36.5


def test_pow_has_the_special_cases_of_c() -> None:
    base, exponent = [NAN, 1, -8, -2, 0, 2, 1e30], [0, NAN, 1 / 3, 3, -1, 0.5, 2]
    expected = np.array([1, 1, NAN, -8, INF, 2**0.5, INF], np.float32)
    np.testing.assert_allclose(run_one(Op.POW, of(F32, base), of(F32, exponent)), expected, rtol=1e-6)
    assert run_one(Op.POW, of(F16, [[300], [3]]), of(F16, [2, -1])) == [
        [INF, np.float16(1 / 300)],
        [9, np.float16(1 / 3)],
    ]


GENERAL, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT
F, INTEGER, HIGH = of(F32, [1, 2]), of(I32, [1, 2]), of(F32, np.ones((1, 1, 1, 1, 2)))
UNRANKED = tensor(F32), np.ones((1, 1, 1, 1, 2))
OUT, QUANT = tensor(F32), of(U8, [1, 2], 1, 0)
WRONG: list[tuple[Op, list[Value], Operand, ErrorStatus, str]] = [
    *((type_, [F, of(F32, [1, 2, 3]), NONE], OUT, GENERAL, "cannot be broadcast") for type_ in (Op.ADD, Op.MUL)),
    *((type_, [F, of(F32, [1, 2, 3])], OUT, GENERAL, "cannot be broadcast") for type_ in (Op.MAXIMUM, Op.POW)),
    *((type_, [F, F, int32(4)], OUT, GENERAL, r"activation is 4; it must be in 0\.\.3") for type_ in (Op.SUB, Op.DIV)),
    *(
        (type_, [INTEGER, INTEGER, RELU], tensor(I32), GENERAL, "activation is 1; TENSOR_INT32 allows only 0")
        for type_ in (Op.ADD, Op.SUB, Op.MUL, Op.DIV)
    ),
    (Op.SUB, [F, UNRANKED, NONE], OUT, GENERAL, "input1 has rank 5; it must be at most 4"),
    (Op.DIV, [UNRANKED, F, NONE], OUT, GENERAL, "dividend has rank 5; it must be at most 4"),
    (Op.SUB, [F, HIGH, NONE], OUT, INVALID, "input1 has rank 5; it must be 1 to 4"),
    (Op.SUB, [QUANT, QUANT, NONE], tensor(U8, (), 2**-19), GENERAL, "the multiplier 1; it must be between 0 and 1"),
    (Op.MUL, [QUANT, QUANT, NONE], tensor(U8, (), 1), INVALID, r"must be greater than scale0 \* scale1 = 1"),
    (Op.DIV, [QUANT, QUANT, NONE], tensor(U8, (), 2), INVALID, "TENSOR_QUANT8_ASYMM, not"),
    (Op.ADD, [F, F, NONE], tensor(F32, (3,)), GENERAL, r"has shape \[2\], declared \[3\]"),
]


@pytest.mark.parametrize(("type_", "inputs", "output", "status", "message"), WRONG)
def test_broken_constraints(type_: Op, inputs: list[Value], output: Operand, status: ErrorStatus, message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, inputs, [output])
    assert error.value.status == status


def test_empty_tensors() -> None:
    empty, single = (tensor(F32), np.zeros((0, 2))), of(F32, [[1, 2]])
    for type_ in (Op.ADD, Op.SUB, Op.MUL, Op.DIV):
        assert run_kernel(type_, [empty, single, NONE], [OUT])[0].shape == (0, 2)
        with pytest.raises(HalError, match="cannot be broadcast"):
            run_kernel(type_, [empty, of(F32, [[1], [2]]), NONE], [OUT])
    for type_ in (Op.MAXIMUM, Op.MINIMUM, Op.POW):
        with pytest.raises(HalError, match="has no elements") as error:
            run_kernel(type_, [empty, single], [OUT])
        assert error.value.status == INVALID


SHAPES = mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, min_side=1, max_side=4)
SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def random_inputs(rng: np.random.Generator, type_: T, shapes: BroadcastableShapes) -> list[tuple[Operand, Any]]:
    """Return two inputs with different scales and zero points."""
    low = -128 if type_ == I8 else 0
    quantized = type_ in (U8, I8)
    operands = [
        tensor(type_, shape, rng.uniform(0.01, 2), int(rng.integers(256)) + low) if quantized else tensor(type_, shape)
        for shape in shapes.input_shapes
    ]
    return [(operand, sample(rng, operand)) for operand in operands]


@pytest.mark.parametrize(
    ("type_", "operand"),
    [(op, t) for op in (Op.ADD, Op.SUB, Op.MUL) for t in (F32, U8, I8)] + [(Op.DIV, F32), (Op.MUL, I32)],
)
@settings(max_examples=12, deadline=None)
@given(SHAPES, SEEDS, st.sampled_from([0, 1, 3]))
def test_agrees_with_litert(
    type_: Op, operand: T, shapes: BroadcastableShapes, rng: np.random.Generator, activation: int
) -> None:
    inputs = random_inputs(rng, operand, shapes)
    activation = 0 if operand == I32 else activation
    scale = float(rng.uniform(1, 3)) * inputs[0][0].scale * (inputs[1][0].scale if type_ == Op.MUL else 1)
    output = tensor(operand, shapes.result_shape, scale, -3 if operand == I8 else 100 if operand == U8 else 0)
    s = schema()
    options = getattr(s, f"{type_.name.capitalize()}OptionsT")()
    options.fusedActivationFunction = activation
    ours = run(type_, [*inputs, int32(activation)], [output])[0]
    theirs = litert(type_.name, options, inputs, [output])[0]
    if operand == F32:
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("type_", [Op.MAXIMUM, Op.MINIMUM, Op.POW])
@settings(max_examples=12, deadline=None)
@given(SHAPES, SEEDS, st.sampled_from([F32, I32, U8, I8]))
def test_extremes_and_powers_agree_with_litert(
    type_: Op, shapes: BroadcastableShapes, rng: np.random.Generator, operand: T
) -> None:
    operand = F32 if type_ == Op.POW else operand
    quantized = (0.3, 7) if operand in (U8, I8) else (0, 0)
    inputs = [
        (each, sample(rng, each)) for each in (tensor(operand, shape, *quantized) for shape in shapes.input_shapes)
    ]
    output = tensor(operand, shapes.result_shape, *quantized)
    ours = run(type_, inputs, [output])[0]
    np.testing.assert_allclose(ours, litert(type_.name, None, inputs, [output])[0], rtol=1e-5)
