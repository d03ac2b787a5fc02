"""DEPTH_TO_SPACE and its like, CHANNEL_SHUFFLE on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import AnyArray, ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, boolean, int32, run, run_kernel, tensor

F32 = T.TENSOR_FLOAT32


def image(*shape: int) -> Value:
    return tensor(F32, shape), np.arange(np.prod(shape)).reshape(shape)


def vector(*values: int) -> Value:
    return tensor(T.TENSOR_INT32, (len(values),)), values


def margins(top: int, bottom: int, left: int, right: int) -> Value:
    return tensor(T.TENSOR_INT32, (2, 2)), [[top, bottom], [left, right]]


def run_one(type_: Op, *inputs: Value) -> AnyArray:
    return run(type_, inputs, [tensor(F32)])[0]


def test_depth_to_space_by_hand() -> None:
    # one pixel of 8 channels: 4 pixels of 2 channels, row by row
    out = run_one(Op.DEPTH_TO_SPACE, image(1, 1, 1, 8), int32(2))
    np.testing.assert_array_equal(out, [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]])


def test_batch_to_space_by_hand() -> None:
    # 6 batches, blocks of 1 x 3: batch k * 2 + b is pixel k of image b
    out = run_one(Op.BATCH_TO_SPACE_ND, image(6, 1, 1, 1), vector(1, 3))
    np.testing.assert_array_equal(out, [[[[0], [2], [4]]], [[[1], [3], [5]]]])


def test_space_to_batch_pads_with_the_zero_point() -> None:
    operand = tensor(T.TENSOR_QUANT8_ASYMM, (1, 1, 2, 1), 0.5, 7)
    inputs = [(operand, [[[[1], [2]]]]), vector(2, 1), margins(1, 0, 0, 1)]
    out = run(Op.SPACE_TO_BATCH_ND, inputs, [tensor(T.TENSOR_QUANT8_ASYMM, (), 0.5, 7)])[0]
    np.testing.assert_array_equal(out, [[[[7], [7], [7]]], [[[1], [2], [7]]]])


def test_channel_shuffle_by_hand() -> None:
    out = run_one(Op.CHANNEL_SHUFFLE, (tensor(F32, (2, 6)), [range(6), range(6, 12)]), int32(3), int32(-1))
    # groups 01, 23, 45
    np.testing.assert_array_equal(out, [[0, 2, 4, 1, 3, 5], [6, 8, 10, 7, 9, 11]])
    out = run_one(Op.CHANNEL_SHUFFLE, (tensor(F32, (4, 2)), [[0, 1], [2, 3], [4, 5], [6, 7]]), int32(2), int32(0))
    np.testing.assert_array_equal(out, [[0, 1], [4, 5], [2, 3], [6, 7]])


@pytest.mark.parametrize(
    ("type_", "rest"),
    [
        (Op.DEPTH_TO_SPACE, [int32(2)]),
        (Op.SPACE_TO_DEPTH, [int32(2)]),
        (Op.BATCH_TO_SPACE_ND, [vector(3, 2)]),
        (Op.SPACE_TO_BATCH_ND, [vector(3, 2), margins(2, 0, 1, 1)]),
    ],
)
def test_nchw_is_nhwc_transposed(type_: Op, rest: list[Value]) -> None:
    shape, data = (6, 4, 2, 8), np.random.default_rng(0).standard_normal((6, 4, 2, 8))
    plain = run_one(type_, (tensor(F32, shape), data), *rest, boolean(False))
    nchw = run_one(type_, (tensor(F32, (6, 8, 4, 2)), data.transpose(0, 3, 1, 2)), *rest, boolean(True))
    np.testing.assert_array_equal(nchw, plain.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("type_", "inputs", "message"),
    [
        (Op.DEPTH_TO_SPACE, [image(1, 1, 1, 6), int32(2)], "6 channels, not a multiple of 2"),
        (Op.DEPTH_TO_SPACE, [image(1, 1, 4), int32(2)], "rank 3; it must be 4"),
        (Op.DEPTH_TO_SPACE, [image(1, 1, 1, 4), int32(0)], "block_size is 0"),
        (Op.SPACE_TO_DEPTH, [image(1, 2, 3, 1), int32(2)], "2 x 3, not a multiple of 2"),
        (Op.BATCH_TO_SPACE_ND, [image(6, 1, 1, 1), vector(2, 2)], "6 batches, not a multiple"),
        (Op.BATCH_TO_SPACE_ND, [image(6, 1, 1, 1), vector(2, 0)], "both must be at least 1"),
        (Op.BATCH_TO_SPACE_ND, [image(6, 1, 1, 1), vector(2, 1, 1)], "3 elements; it must have 2"),
        (Op.SPACE_TO_BATCH_ND, [image(1, 2, 2, 1), vector(2, 2), margins(0, 1, 0, 0)], "3 x 2, not a multiple of 2 x"),
        (Op.SPACE_TO_BATCH_ND, [image(1, 2, 2, 1), vector(2, 2), margins(-1, 1, 0, 0)], "none may be negative"),
        (Op.SPACE_TO_BATCH_ND, [image(1, 2, 2, 1), vector(2, 2), vector(0, 0, 0, 0)], r"must be \[2, 2\]"),
        (Op.CHANNEL_SHUFFLE, [image(1, 6), int32(4), int32(1)], "6 channels, not a multiple of 4"),
        (Op.CHANNEL_SHUFFLE, [image(1, 6), int32(0), int32(1)], "num_groups is 0"),
        (Op.CHANNEL_SHUFFLE, [image(1, 6), int32(2), int32(2)], "axis is 2"),
    ],
)
def test_broken_constraint_fails_the_run(type_: Op, inputs: list[Value], message: str) -> None:
    with pytest.raises(HalError, match=message) as caught:
        run_one(type_, *inputs)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE


@pytest.mark.parametrize(
    ("type_", "rest", "status"),
    [
        (Op.DEPTH_TO_SPACE, [int32(2)], ErrorStatus.INVALID_ARGUMENT),
        (Op.SPACE_TO_DEPTH, [int32(2)], ErrorStatus.INVALID_ARGUMENT),
        (Op.BATCH_TO_SPACE_ND, [vector(1, 1)], ErrorStatus.INVALID_ARGUMENT),
        (Op.SPACE_TO_BATCH_ND, [vector(1, 1), margins(0, 0, 0, 0)], ErrorStatus.INVALID_ARGUMENT),
        (Op.CHANNEL_SHUFFLE, [int32(2), int32(-1)], ErrorStatus.GENERAL_FAILURE),
    ],
)
def test_empty_inputs_fail_the_run(type_: Op, rest: list[Value], status: ErrorStatus) -> None:
    with pytest.raises(HalError, match="input has no elements") as caught:
        run_kernel(type_, [image(0, 2, 2, 4), *rest], [tensor(F32)])
    assert caught.value.status == status


@settings(max_examples=25, deadline=None)
@given(data=st.data(), side=st.integers(1, 3), shape=st.tuples(*[st.integers(1, 3)] * 4))
def test_depth_agrees_with_litert(data: st.DataObject, side: int, shape: tuple[int, ...]) -> None:
    type_ = data.draw(st.sampled_from([Op.DEPTH_TO_SPACE, Op.SPACE_TO_DEPTH]), "type")
    batches, height, width, depth = shape
    spatial, deep = (batches, height * side, width * side, depth), (batches, height, width, depth * side**2)
    given_, result = (deep, spatial) if type_ == Op.DEPTH_TO_SPACE else (spatial, deep)
    options = schema().DepthToSpaceOptionsT() if type_ == Op.DEPTH_TO_SPACE else schema().SpaceToDepthOptionsT()
    options.blockSize = side
    operand, value = tensor(F32, given_), np.arange(np.prod(given_), dtype=np.float32).reshape(given_)
    theirs = litert(type_.name, options, [(operand, value)], [tensor(F32, result)])
    np.testing.assert_array_equal(run_one(type_, (operand, value), int32(side)), theirs[0])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_batches_agree_with_litert(data: st.DataObject) -> None:
    small = st.integers(1, 3)
    block = np.array([data.draw(small), data.draw(small)], np.int32)
    batches, height, width, depth = (data.draw(small) for _ in range(4))
    type_ = data.draw(st.sampled_from([Op.BATCH_TO_SPACE_ND, Op.SPACE_TO_BATCH_ND]), "type")
    if type_ == Op.BATCH_TO_SPACE_ND:
        padding = np.zeros((2, 2), np.int32)
        shape = (int(batches * block.prod()), height, width, depth)
        result = (batches, int(height * block[0]), int(width * block[1]), depth)
    else:
        size = np.array([height, width], np.int32)
        before = np.array([data.draw(small) - 1, data.draw(small) - 1], np.int32)
        padding = np.stack([before, -(before + size) % block], axis=1)
        shape = (batches, height, width, depth)
        blocks = (size + padding.sum(axis=1)) // block
        result = (int(batches * block.prod()), int(blocks[0]), int(blocks[1]), depth)
    operand, value = tensor(F32, shape), np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    arguments = [(operand, value), (tensor(T.TENSOR_INT32, (2,)), block), (tensor(T.TENSOR_INT32, (2, 2)), padding)]
    ours = run_one(type_, *(arguments[:2] if type_ == Op.BATCH_TO_SPACE_ND else arguments))
    np.testing.assert_array_equal(ours, litert(type_.name, None, arguments, [tensor(F32, result)])[0])
