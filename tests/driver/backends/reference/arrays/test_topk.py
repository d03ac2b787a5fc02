"""TOPK_V2 on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import float_tensor, int32, run, run_kernel, sample, tensor

F32, F16, U8, I8, I32 = (
    T.TENSOR_FLOAT32,
    T.TENSOR_FLOAT16,
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_INT32,
)
INDICES = tensor(I32)


def operand(type_: T, shape: tuple[int, ...] = ()) -> Operand:
    return tensor(type_, shape, 0.5, 3) if type_ in (U8, I8) else tensor(type_, shape)


@pytest.mark.parametrize("type_", [F32, F16, U8, I8, I32])
def test_larger_index_comes_first_among_equals(type_: T) -> None:
    input_ = operand(type_, (2, 4)), [[3, 5, 3, 5], [1, 2, 3, 4]]
    values, indices = run(Op.TOPK_V2, [input_, int32(3)], [operand(type_), INDICES])
    assert values.tolist() == [[5, 5, 3], [4, 3, 2]]
    assert indices.tolist() == [[3, 1, 2], [3, 2, 1]]


def test_zeros_of_either_sign_are_equal() -> None:
    values, indices = run(Op.TOPK_V2, [float_tensor([0.0, -0.0, 0.0]), int32(3)], [tensor(F32), INDICES])
    assert indices.tolist() == [2, 1, 0]
    assert np.signbit(values).tolist() == [False, True, False]


@pytest.mark.parametrize("k", [0, -1, 3])
def test_k_out_of_range_fails_the_run(k: int) -> None:
    with pytest.raises(HalError, match=rf"k is {k}; it must be in 1\.\.2") as error:
        run(Op.TOPK_V2, [float_tensor([[1, 2]] * 5), int32(k)], [tensor(F32), INDICES])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


def test_quantization_of_outputs_is_checked() -> None:
    input_ = operand(U8, (1,)), [1]
    with pytest.raises(HalError, match="values has scale 1, zero point 3; input has"):
        run(Op.TOPK_V2, [input_, int32(1)], [tensor(U8, (), 1, 3), INDICES])
    with pytest.raises(HalError, match="indices has scale 1, zero point 0; it must have 0, 0"):
        run(Op.TOPK_V2, [input_, int32(1)], [operand(U8), tensor(I32, (), 1)])


def test_empty_inputs_fail_the_run() -> None:
    with pytest.raises(HalError, match="input has no elements") as error:
        run_kernel(Op.TOPK_V2, [(tensor(F32), np.zeros((0, 2))), int32(1)], [tensor(F32), INDICES])
    assert error.value.status == ErrorStatus.GENERAL_FAILURE


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    st.integers(0, 2**32 - 1).map(np.random.default_rng),
    st.sampled_from([F32, U8, I8, I32]),
)
def test_agrees_with_litert(shape: tuple[int, ...], rng: np.random.Generator, type_: T) -> None:
    input_ = operand(type_, shape), sample(rng, operand(type_, shape))
    k = int(rng.integers(1, shape[-1] + 1))
    values, indices = run(Op.TOPK_V2, [input_, int32(k)], [operand(type_), INDICES])
    count = tensor(I32, (1,)), np.array([k], np.int32)
    theirs = litert("TOPK_V2", schema().TopKV2OptionsT(), [input_, count], [operand(type_), INDICES])
    np.testing.assert_array_equal(values, theirs[0])  # indices differ where values are equal
    np.testing.assert_array_equal(np.take_along_axis(input_[1], indices, -1), values)
