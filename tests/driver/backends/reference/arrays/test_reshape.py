"""RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE and RANK on CpuRef: cases computed by hand, and comparison with LiteRT."""

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
GRID = float_tensor([[0, 1, 2], [3, 4, 5]])
OMITTED = tensor(I32, (1,)), None


def shaped(*shape: int) -> Value:
    return float_tensor(np.arange(np.prod(shape)).reshape(shape))


def test_reshape_keeps_the_order() -> None:
    assert run(Op.RESHAPE, [GRID, int_tensor([3, -1])], [OUT])[0].tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("input_", "axes", "expected"),
    [
        (shaped(1, 2, 1, 3), int_tensor([2]), (1, 2, 3)),
        (shaped(1, 2, 1, 3), int_tensor([-2, 0, 2]), (2, 3)),
        (shaped(1, 2, 1, 3), OMITTED, (2, 3)),
        (shaped(1, 1), OMITTED, (1,)),
        (shaped(1, 1), int_tensor([0, 1]), (1,)),
    ],
)
def test_squeeze_removes_dimensions(input_: Value, axes: Value, expected: tuple[int, ...]) -> None:
    (out,) = run(Op.SQUEEZE, [input_, axes], [OUT])
    assert out.shape == expected
    np.testing.assert_array_equal(out.ravel(), np.ravel(np.asarray(input_[1])))


@pytest.mark.parametrize(("axis", "expected"), [(0, (1, 2, 3)), (1, (2, 1, 3)), (-1, (2, 3, 1)), (-3, (1, 2, 3))])
def test_expand_dims_inserts_a_dimension(axis: int, expected: tuple[int, ...]) -> None:
    (out,) = run(Op.EXPAND_DIMS, [GRID, int32(axis)], [OUT])
    assert out.shape == expected and out.ravel().tolist() == [0, 1, 2, 3, 4, 5]


def test_transpose_gives_dimension_i_the_inputs_dimension_perm_i() -> None:
    (out,) = run(Op.TRANSPOSE, [shaped(2, 3, 4), int_tensor([2, 0, 1])], [OUT])
    assert out.shape == (4, 2, 3)
    assert out[3, 1, 2] == 1 * 12 + 2 * 4 + 3
    assert run(Op.TRANSPOSE, [GRID, OMITTED], [OUT])[0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_transpose_of_an_empty_tensor() -> None:
    empty = tensor(F32), np.zeros((0, 3))
    assert run_kernel(Op.TRANSPOSE, [empty, int_tensor([1, 0])], [OUT])[0].shape == (3, 0)


def test_rank_is_a_scalar() -> None:
    for rank in (1, 5):
        (out,) = run(Op.RANK, [shaped(*[1] * rank)], [Operand(T.INT32)])
        assert out.shape == () and out == rank


GENERAL, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT
WRONG: list[tuple[Op, list[Value], ErrorStatus, str]] = [
    (Op.RESHAPE, [GRID, int_tensor([4, 2])], GENERAL, r"input has 6 elements; shape \[4, 2\] has 8"),
    (Op.RESHAPE, [GRID, int_tensor([4, -1])], GENERAL, "input has 6 elements"),
    (Op.RESHAPE, [GRID, int_tensor([-1, -1, 6])], GENERAL, "more than one -1"),
    (Op.RESHAPE, [GRID, int_tensor([-2, -3])], GENERAL, "a value that is not > 0 or -1"),
    (Op.RESHAPE, [GRID, int_tensor([0, -1])], GENERAL, "a value that is not > 0 or -1"),
    (Op.RESHAPE, [GRID, OMITTED], INVALID, "shape has no value"),
    (Op.SQUEEZE, [GRID, int_tensor([0])], GENERAL, "dimension 0 of input is 2; it must be 1"),
    (Op.SQUEEZE, [shaped(1), int_tensor([1])], GENERAL, r"axes are \[1\]; each must be in -1\.\.0"),
    (Op.SQUEEZE, [shaped(1), int_tensor([[0]])], GENERAL, "axes has rank 2"),
    (Op.SQUEEZE, [shaped(1, 2), (tensor(I32, (1, 1)), None)], GENERAL, "axes is declared with rank 2"),
    (Op.EXPAND_DIMS, [GRID, int32(3)], GENERAL, r"axis is 3; it must be in -3\.\.2"),
    (Op.EXPAND_DIMS, [GRID, int32(-4)], GENERAL, "axis is -4"),
    (Op.TRANSPOSE, [GRID, int_tensor([1])], GENERAL, "perm has 1 elements; it must have 2"),
    (Op.TRANSPOSE, [GRID, int_tensor([0, 0])], GENERAL, r"perm \[0, 0\] is not a permutation of 0\.\.1"),
    (Op.TRANSPOSE, [GRID, int_tensor([-1, 0])], GENERAL, "is not a permutation"),
    (Op.TRANSPOSE, [shaped(1, 2, 3), OMITTED], GENERAL, "input has rank 3; without perm it must be 2"),
]


@pytest.mark.parametrize(("type_", "inputs", "status", "message"), WRONG)
def test_broken_constraints_fail_the_run(type_: Op, inputs: list[Value], status: ErrorStatus, message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, inputs, [OUT])
    assert error.value.status == status


@pytest.mark.parametrize(
    ("type_", "rest", "status"),
    [
        (Op.RESHAPE, [int_tensor([1])], INVALID),
        (Op.SQUEEZE, [OMITTED], GENERAL),
        (Op.EXPAND_DIMS, [int32(0)], INVALID),
        (Op.RANK, [], GENERAL),
    ],
)
def test_empty_inputs_fail_the_run(type_: Op, rest: list[Value], status: ErrorStatus) -> None:
    empty = tensor(F32), np.zeros((0, 1))
    with pytest.raises(HalError, match="input has no elements") as error:
        run_kernel(type_, [empty, *rest], [Operand(T.INT32) if type_ == Op.RANK else OUT])
    assert error.value.status == status


@pytest.mark.parametrize(
    ("type_", "rest"),
    [
        (Op.RESHAPE, [int_tensor([2])]),
        (Op.SQUEEZE, [OMITTED]),
        (Op.EXPAND_DIMS, [int32(0)]),
        (Op.TRANSPOSE, [int_tensor([0, 1])]),
    ],
)
def test_outputs_are_quantized_as_the_input(type_: Op, rest: list[Value]) -> None:
    with pytest.raises(HalError, match=r"output has scale 0\.5, zero point 4; input has 0\.5, 3"):
        run(type_, [(tensor(U8, (1, 2), 0.5, 3), [[1, 2]]), *rest], [tensor(U8, (), 0.5, 4)])


@settings(max_examples=25, deadline=None)
@given(
    st.data(),
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    st.integers(0, 2**32 - 1).map(np.random.default_rng),
    st.sampled_from([F32, U8, I8]),
)
def test_agrees_with_litert(data: st.DataObject, shape: tuple[int, ...], rng: np.random.Generator, type_: T) -> None:
    quantization = (0.0, 0) if type_ == F32 else (0.5, 3)
    image, out = tensor(type_, shape, *quantization), tensor(type_, (), *quantization)
    value = image, sample(rng, image)
    order = tensor(I32, (len(shape),)), np.array(data.draw(st.permutations(range(len(shape)))), np.int32)
    ours = run(Op.TRANSPOSE, [value, order], [out])[0]
    np.testing.assert_array_equal(ours, litert("TRANSPOSE", schema().TransposeOptionsT(), [value, order], [out])[0])

    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    position = tensor(I32, (1,)), np.array([axis], np.int32)
    ours = run(Op.EXPAND_DIMS, [value, int32(axis)], [out])[0]
    options = schema().ExpandDimsOptionsT()
    np.testing.assert_array_equal(ours, litert("EXPAND_DIMS", options, [value, position], [out])[0])

    ones = [i for i, length in enumerate(shape) if length == 1]
    axes = data.draw(st.lists(st.sampled_from(ones), min_size=1, unique=True)) if ones else []
    if axes:
        options = schema().SqueezeOptionsT()
        options.squeezeDims = axes
        ours = run(Op.SQUEEZE, [value, int_tensor(axes)], [out])[0]
        theirs = litert("SQUEEZE", options, [value], [out])[0]
        np.testing.assert_array_equal(ours, theirs.reshape(theirs.shape or (1,)))
