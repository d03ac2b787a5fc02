"""MEAN, REDUCE_*, ARGMAX and ARGMIN on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import DTYPES, AnyArray, ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import (
    Value,
    boolean,
    float_tensor,
    int32,
    int_tensor,
    run,
    run_kernel,
    sample,
    tensor,
)

F32, F16, U8, I8, I32, B8 = (
    T.TENSOR_FLOAT32,
    T.TENSOR_FLOAT16,
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_INT32,
    T.TENSOR_BOOL8,
)
OUT = tensor(F32)
GRID = float_tensor([[0, 1, 5], [3, 4, 8]])
INF, NAN = float("inf"), float("nan")


def reduce_last(type_: Op, values: object, element: T = F32) -> AnyArray:
    """Reduce the last dimension."""
    shape = np.shape(np.asarray(values))
    return run(type_, [(tensor(element, shape), values), int_tensor([-1]), boolean(False)], [tensor(element)])[0]


@pytest.mark.parametrize(
    ("axes", "keep_dims", "expected"),
    [
        ([1], 0, [2, 5]),
        ([-1, 1], 1, [[2], [5]]),  # the same axis twice counts once
        ([0], -1, [1.5, 2.5, 6.5]),  # keep_dims is set only if it is greater than 0
        ([1, 0], 0, [3.5]),
        ([0, 1], 1, [[3.5]]),
    ],
)
def test_axes_and_keep_dims(axes: list[int], keep_dims: int, expected: object) -> None:
    assert run(Op.MEAN, [GRID, int_tensor(axes), int32(keep_dims)], [OUT])[0].tolist() == expected


@pytest.mark.parametrize(("keep_dims", "expected"), [(False, [8, 10]), (True, [[[8], [10]]])])
def test_dimensions_that_are_not_adjacent(keep_dims: bool, expected: object) -> None:
    cube = float_tensor([[[0, 1], [2, 3]], [[3, 4], [0, 5]]])  # 0 + 1 + 3 + 4 and 2 + 3 + 0 + 5
    arguments = [cube, int_tensor([0, 2]), boolean(keep_dims)]
    assert run(Op.REDUCE_SUM, arguments, [OUT])[0].tolist() == expected


@pytest.mark.parametrize(
    ("type_", "values", "expected"),
    [
        (U8, [[1, 2, 2], [255, 255, 255]], [1, 255]),  # 5 / 3 is truncated, not rounded
        (I8, [[-1, -2, -2], [1, 2, 2]], [-1, 1]),  # towards zero on both sides
    ],
)
def test_mean_of_quantized_values(type_: T, values: list[list[int]], expected: list[int]) -> None:
    operand = tensor(type_, (2, 3), 0.5, 7)
    (out,) = run(Op.MEAN, [(operand, values), int_tensor([1]), int32(0)], [tensor(type_, (), 0.5, 7)])
    assert out.tolist() == expected


def test_mean_of_float16_is_summed_in_single() -> None:
    values = np.ones((1, 4096), np.float16)  # a sum in float16 would stop at 2048
    assert run(Op.MEAN, [(tensor(F16, (1, 4096)), values), int_tensor([1]), int32(0)], [tensor(F16)])[0] == [1]


def test_sums_are_rounded_at_every_step() -> None:
    assert reduce_last(Op.REDUCE_SUM, np.ones((1, 4096)), F16).tolist() == [2048]
    # 2^24 + 1 is 2^24 in float32
    assert reduce_last(Op.REDUCE_SUM, [[2**24] + [1] * 20]).tolist() == [2**24]
    assert reduce_last(Op.REDUCE_SUM, [[60000, 60000, -60000]], F16).tolist() == [INF]
    assert str(reduce_last(Op.REDUCE_SUM, [[-0.0]]).item()) == "0.0"


def test_products_are_rounded_at_every_step() -> None:
    # float16 does not represent 2049: 2048 * 1.001 gives 2050 (2^11 + 2k), twice
    first = np.float16(np.float32(2048) * np.float32(np.float16(1.001)))
    second = np.float16(np.float32(first) * np.float32(np.float16(1.001)))
    assert reduce_last(Op.REDUCE_PROD, [[2048, 1.001, 1.001]], F16).tolist() == [float(second)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2, -3, 4], -24),
        ([INF, 0], 0),
        ([NAN, 0, 5], 0),
        ([0, NAN], 0),
        ([1e-30, 1e-30, INF], 0),  # underflow gives 0 too
        ([1e30, 1e30, -1], -INF),
        ([2, NAN], NAN),
    ],
)
def test_product_stays_0(values: list[float], expected: float) -> None:
    np.testing.assert_array_equal(reduce_last(Op.REDUCE_PROD, [values]), [expected])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("type_", [F32, F16])
def test_extrema_ignore_nan_and_are_finite_at_least(type_: T) -> None:
    values = [[1, NAN, 2], [NAN, NAN, NAN], [-INF, -INF, NAN], [INF, INF, NAN], [-INF, 3, INF]]
    lowest, highest = (float(x) for x in (np.finfo(DTYPES[type_].str).min, np.finfo(DTYPES[type_].str).max))
    assert reduce_last(Op.REDUCE_MAX, values, type_).tolist() == [2, lowest, lowest, INF, INF]
    assert reduce_last(Op.REDUCE_MIN, values, type_).tolist() == [1, highest, -INF, highest, -INF]


def test_extrema_of_quantized_values() -> None:
    for type_, values in ((U8, [[0, 200, 100]]), (I8, [[-128, 127, 5]])):
        arguments = [(tensor(type_, (1, 3), 0.5, 7), values), int_tensor([1]), boolean(False)]
        assert run(Op.REDUCE_MAX, arguments, [tensor(type_, (), 0.5, 7)])[0].tolist() == [max(values[0])]
        assert run(Op.REDUCE_MIN, arguments, [tensor(type_, (), 0.5, 7)])[0].tolist() == [min(values[0])]


def test_logical_reductions() -> None:
    values = [[True, True], [True, False], [False, False]]
    assert reduce_last(Op.REDUCE_ALL, values, B8).tolist() == [True, False, False]
    assert reduce_last(Op.REDUCE_ANY, values, B8).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("values", "largest", "smallest"),
    [
        ([1, 3, 3, 1], 1, 0),  # the lowest of several
        ([NAN, 3, -INF], 0, 0),  # NaN wins at index 0
        ([2, NAN, 3, NAN, 1], 2, 4),  # and loses elsewhere
        ([-INF, NAN, -INF], 0, 0),
        ([INF, NAN, INF], 0, 0),
    ],
)
def test_index_of_extremum(values: list[float], largest: int, smallest: int) -> None:
    for type_ in (F32, F16):
        input_ = tensor(type_, (len(values),)), values
        assert run(Op.ARGMAX, [input_, int32(0)], [tensor(I32)])[0].tolist() == [largest]
        assert run(Op.ARGMIN, [input_, int32(-1)], [tensor(I32)])[0].tolist() == [smallest]


def test_index_along_either_axis() -> None:
    grid = int_tensor([[5, 2, 9], [7, 1, 8]])
    assert run(Op.ARGMAX, [grid, int32(0)], [tensor(I32)])[0].tolist() == [1, 0, 0]
    assert run(Op.ARGMIN, [grid, int32(1)], [tensor(I32)])[0].tolist() == [1, 1]
    cube = float_tensor(np.array([[[NAN, 1], [2, NAN]]]))
    assert run(Op.ARGMAX, [cube, int32(1)], [OUT_INDEX])[0].tolist() == [[0, 0]]


OUT_INDEX = tensor(I32)
GENERAL, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT
REDUCTIONS = {
    Op.MEAN: F32,
    Op.REDUCE_ALL: B8,
    Op.REDUCE_ANY: B8,
    Op.REDUCE_MAX: F32,
    Op.REDUCE_MIN: F32,
    Op.REDUCE_PROD: F32,
    Op.REDUCE_SUM: F32,
}


def keep(type_: Op) -> Value:
    return int32(1) if type_ == Op.MEAN else boolean(True)


@pytest.mark.parametrize(("type_", "element"), REDUCTIONS.items())
@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([2], r"axes are \[2\]; each must be in -2\.\.1"),
        ([0, -3], r"axes are \[0, -3\]"),
        ([[0]], "axes has rank 2; it must be 1"),
    ],
)
def test_axes_out_of_range_fail_the_run(type_: Op, element: T, axes: object, message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, [(tensor(element, (1, 1)), [[1]]), int_tensor(axes), keep(type_)], [tensor(element)])
    assert error.value.status == GENERAL


@pytest.mark.parametrize("type_", [Op.MEAN, Op.REDUCE_MAX, Op.REDUCE_MIN])
def test_outputs_are_quantized_as_the_input(type_: Op) -> None:
    with pytest.raises(HalError, match="output has scale 1, zero point 3; input has"):
        run(type_, [(tensor(U8, (1,), 0.5, 3), [1]), int_tensor([0]), keep(type_)], [tensor(U8, (), 1, 3)])


@pytest.mark.parametrize(("type_", "element"), REDUCTIONS.items())
def test_empty_inputs_fail_the_run(type_: Op, element: T) -> None:
    status = INVALID if type_ == Op.MEAN else GENERAL
    empty, full = (tensor(element), np.zeros((0, 1))), (tensor(element), np.zeros((1, 1)))
    for input_, axes in ((empty, int_tensor([0])), (full, (tensor(I32), np.zeros(0)))):
        with pytest.raises(HalError, match="has no elements") as error:
            run_kernel(type_, [input_, axes, keep(type_)], [tensor(element)])
        assert error.value.status == status


@pytest.mark.parametrize("type_", [Op.ARGMAX, Op.ARGMIN])
def test_constraints_of_index_of_extremum(type_: Op) -> None:
    with pytest.raises(HalError, match=r"axis is 1; it must be in -1\.\.0") as error:
        run(type_, [float_tensor([1]), int32(1)], [OUT_INDEX])
    assert error.value.status == GENERAL
    with pytest.raises(HalError, match="input has no elements") as error:
        run_kernel(type_, [(OUT, np.zeros((0, 2))), int32(1)], [OUT_INDEX])
    assert error.value.status == INVALID


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)
SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)
CASES: list[tuple[Op, str, T]] = [
    (Op.MEAN, "MEAN", F32),
    (Op.REDUCE_SUM, "SUM", F32),
    (Op.REDUCE_PROD, "REDUCE_PROD", F32),
    *((getattr(Op, name), name, type_) for name in ("REDUCE_MAX", "REDUCE_MIN") for type_ in (F32, U8, I8)),
    (Op.REDUCE_ALL, "REDUCE_ALL", B8),
    (Op.REDUCE_ANY, "REDUCE_ANY", B8),
]


def operand(type_: T, shape: tuple[int, ...] = ()) -> Operand:
    return tensor(type_, shape, 0.5, 3) if type_ in (U8, I8) else tensor(type_, shape)


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), shape=SHAPES, rng=SEEDS)
def test_reductions_agree_with_litert(
    case: tuple[Op, str, T], data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    type_, name, element = case
    rank = len(shape)
    axes = np.array(data.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank)), np.int32)
    keeps = data.draw(st.booleans())
    input_ = operand(element, shape), sample(rng, operand(element, shape))
    vector = tensor(I32, (len(axes),)), axes
    flag = int32(keeps) if type_ == Op.MEAN else boolean(keeps)
    ours = run(type_, [input_, vector, flag], [operand(element)])[0]
    options = schema().ReducerOptionsT()
    options.keepDims = keeps
    theirs = litert(name, options, [input_, vector], [operand(element)])[0]
    np.testing.assert_allclose(ours, theirs.reshape(theirs.shape or (1,)), rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.data(), SHAPES, SEEDS, st.sampled_from([F32, U8, I8, I32]))
def test_index_of_extremum_agrees_with_litert(
    data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, element: T
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    value = operand(element, shape), sample(rng, operand(element, shape)) // 30  # many are equal
    value = value[0], value[1].astype(DTYPES[element])
    position = tensor(I32, (1,)), np.array([axis], np.int32)
    for type_, name in ((Op.ARGMAX, "ArgMax"), (Op.ARGMIN, "ArgMin")):
        options = getattr(schema(), f"{name}OptionsT")()
        options.outputType = schema().TensorType.INT32
        ours = run(type_, [value, int32(axis)], [OUT_INDEX])[0]
        theirs = litert(f"ARG_{name[3:].upper()}", options, [value, position], [OUT_INDEX])[0]
        np.testing.assert_array_equal(ours, theirs.reshape(theirs.shape or (1,)))
