"""SLICE, STRIDED_SLICE, GATHER and REVERSE on CpuRef: cases computed by hand, and comparison with LiteRT."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import (
    Value,
    execute,
    float_tensor,
    int32,
    int_tensor,
    model_of,
    prepare,
    run,
    run_kernel,
    sample,
    tensor,
)

F32, U8, I8, I32 = T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_INT32
OUT = tensor(F32)
GRID = float_tensor([[0, 1, 2], [3, 4, 5]])


def strided_arguments(
    begin: Sequence[int], end: Sequence[int], strides: Sequence[int], masks: tuple[int, int, int] = (0, 0, 0)
) -> list[Value]:
    return [int_tensor(begin), int_tensor(end), int_tensor(strides), *(int32(mask) for mask in masks)]


def test_slice_takes_a_block() -> None:
    (out,) = run(Op.SLICE, [GRID, int_tensor([0, 1]), int_tensor([2, -1])], [OUT])
    assert out.tolist() == [[1, 2], [4, 5]]
    (out,) = run(Op.SLICE, [GRID, int_tensor([1, 3]), int_tensor([1, -1])], [OUT])
    assert out.shape == (1, 0)


def test_slice_of_an_empty_tensor() -> None:
    empty = tensor(F32), np.zeros((0, 3))
    (out,) = run_kernel(Op.SLICE, [empty, int_tensor([0, 1]), int_tensor([0, 2])], [OUT])
    assert out.shape == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (strided_arguments([0, 0], [2, 3], [1, 2]), [[0, 2], [3, 5]]),
        (strided_arguments([1, -1], [-3, -4], [-1, -2]), [[5, 3], [2, 0]]),
        (
            strided_arguments([9, 9], [9, 9], [1, -1], (3, 3, 0)),
            [[2, 1, 0], [5, 4, 3]],
        ),  # masks: positions are ignored
        (strided_arguments([1, 0], [2, 3], [1, 1], (0, 0, 1)), [3, 4, 5]),
        (strided_arguments([-1, -2], [2, -1], [1, 1], (0, 0, 3)), [4]),  # both dimensions dropped leave [1]
        (strided_arguments([0, 2], [2, 1], [1, 1]), [[], []]),
        (strided_arguments([0, 1], [2, 9], [1, 5]), [[1], [4]]),
    ],
)
def test_strided_slice_by_hand(arguments: list[Value], expected: object) -> None:
    (out,) = run(Op.STRIDED_SLICE, [GRID, *arguments], [OUT])
    assert out.tolist() == expected


def test_gather_replaces_the_axis_by_the_indices_shape() -> None:
    (out,) = run(Op.GATHER, [GRID, int32(-1), int_tensor([[2, 0], [1, 1]])], [OUT])
    assert out.tolist() == [[[2, 0], [1, 1]], [[5, 3], [4, 4]]]


def test_reverse_reverses_one_axis() -> None:
    assert run(Op.REVERSE, [GRID, int_tensor([1])], [OUT])[0].tolist() == [[2, 1, 0], [5, 4, 3]]
    assert run(Op.REVERSE, [GRID, int_tensor([0])], [OUT])[0].tolist() == [[3, 4, 5], [0, 1, 2]]


WRONG: list[tuple[Op, list[Value], str]] = [
    (Op.SLICE, [GRID, int_tensor([0]), int_tensor([1, 1])], "begin has 1 elements; it must have 2"),
    (Op.SLICE, [GRID, int_tensor([0, 0]), int_tensor([[1, 1]])], "size has rank 2; it must be 1"),
    (Op.SLICE, [GRID, int_tensor([0, -1]), int_tensor([1, 1])], r"begin\[1\] is -1; it must be in 0\.\.3"),
    (Op.SLICE, [GRID, int_tensor([3, 0]), int_tensor([0, 1])], r"begin\[0\] is 3; it must be in 0\.\.2"),
    (Op.SLICE, [GRID, int_tensor([0, 1]), int_tensor([1, 3])], r"size\[1\] is 3; it must be in -1\.\.2"),
    (Op.SLICE, [GRID, int_tensor([0, 1]), int_tensor([1, -2])], r"size\[1\] is -2"),
    (Op.STRIDED_SLICE, [GRID, *strided_arguments([0, 0], [1, 1], [1, 0])], r"strides\[1\] is 0"),
    (Op.STRIDED_SLICE, [GRID, *strided_arguments([0, 0], [1, 1], [1])], "strides has 1 elements; it must have 2"),
    (
        Op.STRIDED_SLICE,
        [GRID, *strided_arguments([1, 0], [0, 1], [-1, 1], (0, 0, 1))],
        r"strides\[0\] is -1; it must be > 0",
    ),
    (Op.STRIDED_SLICE, [GRID, *strided_arguments([-1, 0], [0, 1], [1, 1], (0, 0, 1))], "dimension 0 has 0 elements"),
    (Op.STRIDED_SLICE, [GRID, *strided_arguments([0, 0], [1, 2], [1, 1], (0, 0, 2))], "dimension 1 has 2 elements"),
    (Op.GATHER, [GRID, int32(2), int_tensor([0])], r"axis is 2; it must be in -2\.\.1"),
    (Op.GATHER, [GRID, int32(0), int_tensor([0, 2])], r"indices lie in 0\.\.2; they must be in 0\.\.1"),
    (Op.GATHER, [GRID, int32(0), int_tensor([-1])], r"indices lie in -1\.\.-1"),
    (Op.REVERSE, [GRID, int_tensor([-1])], r"axis is -1; it must be in 0\.\.1"),
    (Op.REVERSE, [GRID, int_tensor([2])], r"axis is 2; it must be in 0\.\.1"),
    (Op.REVERSE, [float_tensor(np.zeros((1,) * 9)), int_tensor([0])], "input has rank 9; it must be 1 to 8"),
]


@pytest.mark.parametrize(("type_", "inputs", "message"), WRONG)
def test_broken_constraints_fail_the_run(type_: Op, inputs: list[Value], message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, inputs, [OUT])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


EMPTY = tensor(F32), np.zeros((0, 3))


@pytest.mark.parametrize(
    ("type_", "inputs"),
    [
        (Op.STRIDED_SLICE, [EMPTY, *strided_arguments([0, 0], [0, 1], [1, 1])]),
        (Op.GATHER, [EMPTY, int32(1), int_tensor([0])]),
        (Op.GATHER, [GRID, int32(1), (tensor(I32), np.zeros(0))]),
        (Op.REVERSE, [EMPTY, int_tensor([1])]),
    ],
)
def test_empty_inputs_fail_the_run(type_: Op, inputs: list[Value]) -> None:
    with pytest.raises(HalError, match="has no elements"):
        run_kernel(type_, inputs, [OUT])


def test_indices_that_change_between_runs_are_checked_each_time() -> None:
    """Results that depend on values must not be cached by shape."""
    outcome = prepare(model_of(Op.GATHER, [GRID, int32(0), int_tensor([0])], [OUT], constants=False))
    grid = np.asarray(GRID[1], np.float32)
    assert execute(outcome, [grid, np.array([1], np.int32)])[1][0].tolist() == [[3, 4, 5]]
    with pytest.raises(HalError, match="indices lie in"):
        execute(outcome, [grid, np.array([2], np.int32)])


TYPES = st.sampled_from([F32, U8, I8])
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)
SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def operand(type_: T, shape: Sequence[int] = ()) -> Operand:
    return tensor(type_, shape) if type_ == F32 else tensor(type_, shape, 0.5, 3)


def vector(values: Sequence[int]) -> tuple[Operand, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return tensor(I32, (len(values),)), np.array(values, np.int32)


@settings(max_examples=40, deadline=None)
@given(st.data(), SHAPES, SEEDS, TYPES)
def test_strided_slice_agrees_with_litert(
    data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, type_: T
) -> None:
    bound = st.integers(-7, 7)
    begins, ends = ([data.draw(bound) for _ in shape] for _ in "be")
    steps = [data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3])) for _ in shape]
    begin_mask, end_mask, shrink = (data.draw(st.integers(0, 2 ** len(shape) - 1)) for _ in "bes")
    for i, length in enumerate(shape):  # a dropped dimension must have size 1
        if shrink >> i & 1:
            begins[i] = data.draw(st.integers(0, length - 1))
            ends[i], steps[i] = begins[i] + 1, 1
            begin_mask, end_mask = begin_mask & ~(1 << i), end_mask & ~(1 << i)
    image = operand(type_, shape), sample(rng, operand(type_, shape))
    vectors = [vector(values) for values in (begins, ends, steps)]
    masks = [int32(mask) for mask in (begin_mask, end_mask, shrink)]
    ours = run(Op.STRIDED_SLICE, [image, *vectors, *masks], [operand(type_)])[0]
    options = schema().StridedSliceOptionsT()
    options.beginMask, options.endMask, options.shrinkAxisMask = begin_mask, end_mask, shrink
    theirs = litert("STRIDED_SLICE", options, [image, *vectors], [operand(type_, ours.shape)])[0]
    np.testing.assert_array_equal(ours, theirs.reshape(ours.shape))  # LiteRT gives a scalar where we give [1]


@settings(max_examples=25, deadline=None)
@given(st.data(), SHAPES, SEEDS, TYPES)
def test_slice_gather_and_reverse_agree_with_litert(
    data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, type_: T
) -> None:
    image = operand(type_, shape), sample(rng, operand(type_, shape))
    out = operand(type_)
    begins = [data.draw(st.integers(0, length - 1)) for length in shape]
    sizes = [data.draw(st.sampled_from([-1, 1, length - b])) for length, b in zip(shape, begins, strict=True)]
    block = [image, vector(begins), vector(sizes)]
    ours = run(Op.SLICE, block, [out])[0]
    np.testing.assert_array_equal(ours, litert("SLICE", schema().SliceOptionsT(), block, [out])[0])

    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    indices = rng.integers(0, shape[axis], rng.integers(1, 4, rng.integers(1, 3)), np.int32)
    chosen = tensor(I32, indices.shape), indices
    options = schema().GatherOptionsT()
    options.axis = axis
    ours = run(Op.GATHER, [image, int32(axis), chosen], [out])[0]
    np.testing.assert_array_equal(ours, litert("GATHER", options, [image, chosen], [out])[0])

    turned = [image, vector([axis % len(shape)])]
    ours = run(Op.REVERSE, turned, [out])[0]
    np.testing.assert_array_equal(ours, litert("REVERSE_V2", schema().ReverseV2OptionsT(), turned, [out])[0])
