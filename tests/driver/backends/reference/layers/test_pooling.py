"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D on CpuRef: cases computed by hand, and comparison with LiteRT."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import AnyArray
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, boolean, int32, run, run_kernel, sample, tensor

SAME, VALID = 1, 2
NONE, RELU, RELU1, RELU6 = range(4)
F32, UINT8, INT8 = T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
POOLS = [Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D, Op.L2_POOL_2D]


def row(*values: float, type_: T = F32) -> Value:
    scale, zero_point = (0.0, 0) if type_ == F32 else (0.5, 10)
    return tensor(type_, (1, 1, len(values), 1), scale, zero_point), np.reshape(values, (1, 1, -1, 1))


def pool(type_: Op, image: Value, *rest: Value) -> list[float]:
    operand = image[0]
    output = tensor(T(operand.type), (), operand.scale, operand.zero_point)
    return list(run(type_, [image, *rest], [output])[0].ravel())


def window(width: int, stride: int = 1, activation: int = NONE) -> list[Value]:
    return [int32(stride), int32(1), int32(width), int32(1), int32(activation)]


def test_padding_is_ignored() -> None:
    image, rest = row(-1, -3, -7), [int32(2), int32(0), int32(0), int32(0), *window(3)]
    # windows: -1; -1 -3; -1 -3 -7
    assert pool(Op.AVERAGE_POOL_2D, image, *rest) == pytest.approx([-1, -2, -11 / 3])
    assert pool(Op.MAX_POOL_2D, image, *rest) == [-1, -1, -1]
    assert pool(Op.L2_POOL_2D, image, *rest) == pytest.approx([1, sqrt(5), sqrt(59 / 3)])


def test_same_padding_puts_the_odd_cell_after() -> None:
    # windows of 2 with stride 1 over 3 cells: one more cell, at the end
    assert pool(Op.MAX_POOL_2D, row(3, 1, 2), int32(SAME), *window(2)) == [3, 2, 2]
    # any other value is VALID
    assert pool(Op.MAX_POOL_2D, row(3, 1, 2), int32(0), *window(2)) == [3, 2]


def test_8_bit_means_are_rounded() -> None:
    rest = [int32(VALID), *window(2, 2)]
    assert pool(Op.AVERAGE_POOL_2D, row(1, 2, 0, 1, 3, 3, type_=UINT8), *rest) == [2, 1, 3]
    assert pool(Op.AVERAGE_POOL_2D, row(1, 2, -1, -2, -1, 0, type_=INT8), *rest) == [2, -2, -1]


def test_8_bit_padding_is_never_the_maximum() -> None:
    rest = [int32(1), int32(1), int32(0), int32(0), *window(2)]
    assert pool(Op.MAX_POOL_2D, row(0, 3, type_=UINT8), *rest) == [0, 3, 3]
    assert pool(Op.MAX_POOL_2D, row(-128, -7, type_=INT8), *rest) == [-128, -7, -7]


def test_activations() -> None:
    image = row(-9, 2, 9)
    for activation, expected in ((RELU, [0, 2, 9]), (RELU1, [-1, 1, 1]), (RELU6, [0, 2, 6])):
        for type_ in POOLS[:2]:
            assert pool(type_, image, int32(VALID), *window(1, 1, activation)) == expected
    assert pool(Op.L2_POOL_2D, image, int32(VALID), *window(1, 1, RELU6)) == [6, 2, 6]
    # scale 0.5, zero point 10: 0 is 10, 6 is 22
    for type_ in POOLS[:2]:
        assert pool(type_, row(0, 15, 99, type_=UINT8), int32(VALID), *window(1, 1, RELU6)) == [10, 15, 22]


@pytest.mark.filterwarnings("error")
def test_infinite_floats_are_clamped() -> None:
    largest = float(np.finfo(np.float32).max)
    assert pool(Op.MAX_POOL_2D, row(np.inf, -np.inf), int32(VALID), *window(1)) == [largest, -largest]
    assert pool(Op.L2_POOL_2D, row(1e30), int32(VALID), *window(1)) == [largest]
    assert pool(Op.AVERAGE_POOL_2D, row(largest, largest), int32(VALID), *window(2)) == [largest]


def test_float16_are_rounded_once() -> None:
    # float16 does not represent 2049: the mean of 1024 and 1025 is summed in float32, then rounded to even
    image = tensor(T.TENSOR_FLOAT16, (1, 1, 3, 1)), np.reshape([1024, 1025, 1026], (1, 1, 3, 1))
    assert pool(Op.AVERAGE_POOL_2D, image, int32(VALID), *window(3)) == [1025]


@pytest.mark.parametrize("type_", POOLS)
def test_nchw_is_nhwc_transposed(type_: Op) -> None:
    data = np.random.default_rng(0).standard_normal((2, 5, 4, 3)).astype(np.float32)
    rest = [int32(SAME), int32(2), int32(1), int32(2), int32(3), int32(NONE)]
    out: list[AnyArray] = []
    for shape, image, nchw in (((2, 5, 4, 3), data, False), ((2, 3, 5, 4), data.transpose(0, 3, 1, 2), True)):
        out += run(type_, [(tensor(F32, shape), image), *rest, boolean(nchw)], [tensor(F32)])
    assert out[0].shape == (2, 5, 2, 3)
    np.testing.assert_array_equal(out[1], out[0].transpose(0, 3, 1, 2))


@pytest.mark.parametrize("type_", POOLS)
def test_no_batches_give_an_empty_output(type_: Op) -> None:
    image = tensor(F32), np.zeros((0, 1, 3, 2))
    assert run_kernel(type_, [image, int32(SAME), *window(2)], [tensor(F32)])[0].shape == (0, 1, 3, 2)


@pytest.mark.parametrize("type_", POOLS)
@pytest.mark.parametrize(
    ("image", "rest", "message"),
    [
        (row(1, 2), [int32(2), int32(0), int32(0), int32(0), *window(2)], r"padding_left is 2; it must be in 0\.\.1"),
        (row(1, 2), [int32(0), int32(-1), int32(0), int32(0), *window(2)], "padding_right is -1"),
        (row(1, 2), [int32(0), int32(0), int32(0), int32(1), *window(2)], "padding_bottom is 1"),
        (row(1, 2), [int32(VALID), *window(2, 0)], "stride_width is 0"),
        (row(1, 2), [int32(VALID), *window(0)], "filter_width is 0"),
        (row(1, 2), [int32(VALID), *window(3)], "larger than the padded image along width"),
        (row(1, 2), [int32(VALID), *window(1, 1, 4)], "activation is 4"),
        ((tensor(F32, (1, 2, 1)), np.zeros((1, 2, 1))), [int32(VALID), *window(1)], "rank 3"),
    ],
)
def test_broken_constraint_fails_the_run(type_: Op, image: Value, rest: list[Value], message: str) -> None:
    with pytest.raises(HalError, match=message):
        pool(type_, image, *rest)


@pytest.mark.parametrize("type_", POOLS[:2])
def test_different_output_scale_fails_the_run(type_: Op) -> None:
    with pytest.raises(HalError, match=r"output has scale 0\.25"):
        run(type_, [row(1, type_=UINT8), int32(VALID), *window(1)], [tensor(UINT8, (), 0.25, 10)])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_agrees_with_litert(data: st.DataObject) -> None:
    draw, small = data.draw, st.integers(1, 3)
    type_ = draw(st.sampled_from(POOLS), "operation")
    element = F32 if type_ == Op.L2_POOL_2D else draw(st.sampled_from([F32, UINT8, INT8]), "type")
    shape = (draw(small), draw(st.integers(3, 7)), draw(st.integers(3, 7)), draw(small))
    rows, columns, down, across = (draw(small) for _ in range(4))
    scheme, activation = draw(st.sampled_from([SAME, VALID])), draw(st.sampled_from([NONE, RELU, RELU6]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale, zero_point = (0.0, 0) if element == F32 else (0.1, int(rng.integers(0, 128)))
    operand = tensor(element, shape, scale, zero_point)
    value = sample(rng, operand)
    rest = [int32(n) for n in (scheme, across, down, columns, rows, activation)]
    ours = run(type_, [(operand, value), *rest], [tensor(element, (), scale, zero_point)])[0]

    s = schema()
    options = s.Pool2DOptionsT()
    options.padding = s.Padding.SAME if scheme == SAME else s.Padding.VALID
    options.strideW, options.strideH, options.filterWidth, options.filterHeight = across, down, columns, rows
    options.fusedActivationFunction = {NONE: 0, RELU: 1, RELU6: 3}[activation]
    theirs = litert(type_.name, options, [(operand, value)], [tensor(element, ours.shape, scale, zero_point)])[0]
    if element == F32:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(ours, theirs)
