"""CONCATENATION, SPLIT, PACK and TILE on CpuRef: cases computed by hand, and comparison with LiteRT."""

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
from tests.driver.one_operation import Value, float_tensor, int32, int_tensor, run, run_kernel, sample, tensor

F32, U8, I8, I32 = T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_INT32
OUT = tensor(F32)


def test_concatenation_joins_along_the_axis() -> None:
    (out,) = run(Op.CONCATENATION, [float_tensor([[1, 2], [3, 4]]), float_tensor([[5], [6]]), int32(1)], [OUT])
    np.testing.assert_array_equal(out, [[1, 2, 5], [3, 4, 6]])


@pytest.mark.parametrize(("type_", "shift"), [(U8, 0), (I8, -128)])
def test_concatenation_converts_inputs_to_the_outputs_scale(type_: T, shift: int) -> None:
    first = np.array([12, 13, 9, 255]) + shift
    second = np.array([0, 77]) + shift
    inputs = [
        (tensor(type_, (4,), 0.5, 10 + shift), first),
        (tensor(type_, (2,), 1.0, 3 + shift), second),
        (tensor(type_, (1,), 4.0, 100 + shift), [200 + shift]),
        (tensor(type_, (1,), 1.0, 5 + shift), [9 + shift]),
        int32(0),
    ]
    (out,) = run(Op.CONCATENATION, inputs, [tensor(type_, (), 1.0, 3 + shift)])
    # (12 - 10) / 2 + 3; 1.5 rounds to 2; -0.5 to -1; 122.5 to 123; two unchanged; 100 * 4 + 3 saturates; 9 - 5 + 3
    np.testing.assert_array_equal(out, np.array([4, 5, 2, 126, 0, 77, 255, 7]) + shift)


@pytest.mark.filterwarnings("error")
def test_concatenation_with_extreme_scales_stays_in_range() -> None:
    inputs = [
        (tensor(U8, (3,), 1e30, 1), [0, 1, 255]),  # -1e38, 0, and overflow of float32
        (tensor(U8, (1,), 3e38, 1), [255]),  # infinity - infinity is NaN: the smallest value
        int32(0),
    ]
    (out,) = run(Op.CONCATENATION, inputs, [tensor(U8, (), 1e-8, 7)])
    assert out.tolist() == [0, 7, 255, 0]


def test_concatenation_of_empty_tensors() -> None:
    empty, full = (tensor(F32), np.zeros((2, 0))), (tensor(F32), [[1, 2], [3, 4]])
    assert run_kernel(Op.CONCATENATION, [empty, full, int32(1)], [OUT])[0].tolist() == [[1, 2], [3, 4]]
    assert run_kernel(Op.CONCATENATION, [empty, empty, int32(0)], [OUT])[0].shape == (4, 0)


def test_split_cuts_into_equal_parts() -> None:
    outputs = run(Op.SPLIT, [float_tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), int32(-1), int32(2)], [OUT, OUT])
    assert [out.tolist() for out in outputs] == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]


def test_pack_inserts_a_dimension() -> None:
    (out,) = run(Op.PACK, [int32(1), float_tensor([[1, 2], [3, 4]]), float_tensor([[5, 6], [7, 8]])], [OUT])
    assert out.tolist() == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]
    (out,) = run(Op.PACK, [int32(1), float_tensor([1, 2])], [OUT])
    assert out.tolist() == [[1], [2]]


def test_tile_repeats() -> None:
    (out,) = run(Op.TILE, [float_tensor([[1, 2], [3, 4]]), int_tensor([1, 2])], [OUT])
    assert out.tolist() == [[1, 2, 1, 2], [3, 4, 3, 4]]
    (out,) = run(Op.TILE, [float_tensor([[1, 2]]), int_tensor([0, 2])], [OUT])
    assert out.shape == (0, 4)


GENERAL, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT
QUANT = tensor(U8, (2,), 0.5, 1), [1, 2]
WRONG: list[tuple[Op, list[Value], list[Operand], ErrorStatus, str]] = [
    (Op.CONCATENATION, [float_tensor([1]), int32(-1)], [OUT], GENERAL, r"axis is -1; it must be in 0\.\.0"),
    (Op.CONCATENATION, [float_tensor([1]), int32(1)], [OUT], GENERAL, r"axis is 1; it must be in 0\.\.0"),
    (
        Op.CONCATENATION,
        [float_tensor([1]), float_tensor([[1]]), int32(0)],
        [OUT],
        GENERAL,
        "they may only differ along axis 0",
    ),
    (
        Op.CONCATENATION,
        [float_tensor([[1, 2]]), float_tensor([[1]]), int32(0)],
        [OUT],
        GENERAL,
        r"input1 has shape \[1, 1\]",
    ),
    (Op.CONCATENATION, [float_tensor([1]), int32(0)], [tensor(F32, (2,))], GENERAL, r"has shape \[1\], declared \[2\]"),
    (
        Op.SPLIT,
        [float_tensor([1, 2]), int32(0), int32(1)],
        [OUT, OUT],
        INVALID,
        "num_splits is 1; the operation has 2 outputs",
    ),
    (
        Op.SPLIT,
        [float_tensor([1, 2, 3]), int32(0), int32(2)],
        [OUT, OUT],
        GENERAL,
        "length 3 along the axis, not a multiple",
    ),
    (Op.SPLIT, [float_tensor([1, 2]), int32(1), int32(2)], [OUT, OUT], GENERAL, r"axis is 1; it must be in -1\.\.0"),
    (
        Op.SPLIT,
        [QUANT, int32(0), int32(2)],
        [tensor(U8, (), 0.5, 1), tensor(U8, (), 0.5, 2)],
        GENERAL,
        "output1 has scale 0.5, zero point 2",
    ),
    (Op.PACK, [int32(2), float_tensor([1])], [OUT], GENERAL, r"axis is 2; it must be in 0\.\.1"),
    (Op.PACK, [int32(-1), float_tensor([1])], [OUT], GENERAL, r"axis is -1"),
    (
        Op.PACK,
        [int32(0), float_tensor([1]), float_tensor([1, 2])],
        [OUT],
        GENERAL,
        r"input1 has shape \[2\], input0 \[1\]",
    ),
    (Op.TILE, [float_tensor([1]), int_tensor([1, 1])], [OUT], GENERAL, "multiples has 2 elements; it must have 1"),
    (Op.TILE, [float_tensor([1]), int_tensor([-1])], [OUT], GENERAL, r"multiples \[-1\] has a negative value"),
    (Op.TILE, [float_tensor([1]), int_tensor([[1]])], [OUT], GENERAL, "multiples has rank 2; it must be 1"),
    (Op.TILE, [float_tensor([1]), int_tensor([2**30])], [OUT], GENERAL, "its size does not fit 32 bits"),
    (
        Op.TILE,
        [QUANT, int_tensor([1])],
        [tensor(U8, (), 1, 1)],
        GENERAL,
        "output has scale 1, zero point 1; input has 0.5, 1",
    ),
]


@pytest.mark.parametrize(("type_", "inputs", "outputs", "status", "message"), WRONG)
def test_broken_constraints_fail_the_run(
    type_: Op, inputs: list[Value], outputs: list[Operand], status: ErrorStatus, message: str
) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, inputs, outputs)
    assert error.value.status == status


@pytest.mark.parametrize(
    ("type_", "inputs", "outputs", "status"),
    [
        (Op.SPLIT, [(tensor(F32), np.zeros((0, 2))), int32(1), int32(2)], [OUT, OUT], INVALID),
        (Op.PACK, [int32(0), (tensor(F32), np.zeros((0, 2)))], [OUT], GENERAL),
        (Op.TILE, [(tensor(F32), np.zeros((0,))), int_tensor([2])], [OUT], INVALID),
    ],
)
def test_empty_inputs_fail_the_run(type_: Op, inputs: list[Value], outputs: list[Operand], status: ErrorStatus) -> None:
    with pytest.raises(HalError, match="has no elements") as error:
        run_kernel(type_, inputs, outputs)
    assert error.value.status == status


TYPES = st.sampled_from([F32, U8, I8])
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def quantized(type_: T, shape: Sequence[int]) -> Operand:
    return tensor(type_, shape) if type_ in (F32, I32) else tensor(type_, shape, 0.5, 3)


@settings(max_examples=25, deadline=None)
@given(st.data(), SHAPES, SEEDS, TYPES)
def test_concatenation_agrees_with_litert(
    data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, type_: T
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    operands = [quantized(type_, (*shape[:axis], length, *shape[axis + 1 :])) for length in lengths]
    if type_ == U8:  # LiteRT's int8 kernel requires equal scales
        operands = [tensor(U8, o.dimensions, 0.1 * (i + 1), int(rng.integers(256))) for i, o in enumerate(operands)]
    values = [(operand, sample(rng, operand)) for operand in operands]
    output = quantized(type_, (*shape[:axis], sum(lengths), *shape[axis + 1 :]))
    options = schema().ConcatenationOptionsT()
    options.axis = axis
    ours = run(Op.CONCATENATION, [*values, int32(axis)], [output])[0]
    theirs = litert("CONCATENATION", options, values, [output])[0]
    np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=25, deadline=None)
@given(st.data(), SHAPES, SEEDS, TYPES)
def test_split_agrees_with_litert(
    data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, type_: T
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = data.draw(st.integers(1, 3))
    whole = list(shape)
    whole[axis] *= parts
    operand = quantized(type_, whole)
    value = sample(rng, operand)
    outputs = [quantized(type_, shape)] * parts
    options = schema().SplitOptionsT()
    options.numSplits = parts
    theirs = litert("SPLIT", options, [(tensor(I32, (1,)), np.array([axis], np.int32)), (operand, value)], outputs)
    ours = run(Op.SPLIT, [(operand, value), int32(axis), int32(parts)], outputs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=25, deadline=None)
@given(st.data(), SHAPES, SEEDS, st.sampled_from([F32, U8, I8, I32]))
def test_pack_and_tile_agree_with_litert(
    data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, type_: T
) -> None:
    axis = data.draw(st.integers(0, len(shape)))
    count = data.draw(st.integers(1, 3))
    operand = quantized(type_, shape)
    values = [(operand, sample(rng, operand)) for _ in range(count)]
    output = quantized(type_, (*shape[:axis], count, *shape[axis:]))
    options = schema().PackOptionsT()
    options.axis, options.valuesCount = axis, count
    packed = run(Op.PACK, [int32(axis), *values], [output])[0]
    np.testing.assert_array_equal(packed, litert("PACK", options, values, [output])[0])

    multiples = data.draw(st.lists(st.integers(1, 3), min_size=len(shape), max_size=len(shape)))
    vector = tensor(I32, (len(shape),)), np.array(multiples, np.int32)
    output = quantized(type_, tuple(a * b for a, b in zip(shape, multiples, strict=True)))
    tiled = run(Op.TILE, [values[0], vector], [output])[0]
    np.testing.assert_array_equal(tiled, litert("TILE", schema().TileOptionsT(), [values[0], vector], [output])[0])
