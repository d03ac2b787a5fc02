"""TRANSPOSE_CONV_2D on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, boolean, int32, run, run_kernel, sample, tensor

SAME, VALID = 1, 2
NONE, RELU = 0, 1
F32 = T.TENSOR_FLOAT32
NHWC, NCHW = boolean(False), boolean(True)


def floats(shape: tuple[int, ...], *values: float) -> Value:
    return tensor(F32, shape), np.reshape(values, shape)


def transpose_row(*rest: Value, bias: float = 0) -> list[float]:
    """Transpose-convolve the row 1, 2 by the filter 1, 10, 100."""
    image, kernel = floats((1, 1, 2, 1), 1, 2), floats((1, 1, 3, 1), 1, 10, 100)
    out: list[float] = (
        run(Op.TRANSPOSE_CONV_2D, [image, kernel, floats((1,), bias), *rest], [tensor(F32)])[0].reshape(-1).tolist()
    )
    return out


def padding(left: int, right: int, top: int = 0, bottom: int = 0) -> list[Value]:
    return [int32(left), int32(right), int32(top), int32(bottom)]


def shape(*values: int) -> Value:
    return tensor(T.TENSOR_INT32, (len(values),)), values


def test_explicit_padding_by_hand() -> None:
    strides = [int32(2), int32(1), int32(NONE), NHWC]
    # 1 10 100 .   .
    # .  .   2 20 200
    assert transpose_row(*padding(0, 0), *strides) == [1, 10, 102, 20, 200]
    assert transpose_row(*padding(0, 0), *strides, bias=0.5) == [1.5, 10.5, 102.5, 20.5, 200.5]
    assert transpose_row(*padding(1, 2), *strides) == [10, 102]
    assert transpose_row(*padding(3, -2), *strides) == [20, 200, 0, 0]  # negative padding lengthens the output
    assert transpose_row(*padding(7, -4), *strides) == [0, 0]


def test_implicit_padding_by_hand() -> None:
    strides = [int32(2), int32(1), int32(NONE), NHWC]
    # size 4 of 5: crop one cell after; size 3 of 5: crop one before and one after
    assert transpose_row(shape(1, 1, 4, 1), int32(SAME), *strides) == [1, 10, 102, 20]
    assert transpose_row(shape(1, 1, 3, 1), int32(SAME), *strides) == [10, 102, 20]
    assert transpose_row(shape(1, 1, 3, 1), int32(VALID), *strides) == [1, 10, 102, 20, 200]
    # a filter narrower than the stride: the tail is negative
    image, kernel = floats((1, 1, 2, 1), 1, 2), floats((1, 1, 1, 1), 3)
    rest = [shape(1, 1, 4, 1), int32(SAME), *strides]
    out = run(Op.TRANSPOSE_CONV_2D, [image, kernel, floats((1,), 0), *rest], [tensor(F32)])[0]
    assert out.reshape(-1).tolist() == [3, 0, 6, 0]


def test_rows_and_columns_keep_their_sides() -> None:
    image, kernel = floats((1, 1, 1, 1), 1), floats((1, 2, 3, 1), 1, 2, 3, 4, 5, 6)
    for sides, expected in ((padding(1, 0, 0, 1), [2, 3]), (padding(0, 1, 1, 0), [4, 5])):
        rest = [*sides, int32(1), int32(1), int32(NONE), NHWC]
        out = run(Op.TRANSPOSE_CONV_2D, [image, kernel, floats((1,), 0), *rest], [tensor(F32)])[0]
        assert out.reshape(-1).tolist() == expected


def test_nchw_is_nhwc_transposed() -> None:
    rng = np.random.default_rng(0)
    image, kernel, bias = tensor(F32, (2, 3, 4, 5)), tensor(F32, (2, 2, 3, 5)), tensor(F32, (2,))
    data, *rest = ((operand, sample(rng, operand)) for operand in (image, kernel, bias))
    turned = tensor(F32, (2, 5, 3, 4)), data[1].transpose(0, 3, 1, 2)
    options = [int32(SAME), int32(2), int32(1), int32(RELU)]
    plain = run(Op.TRANSPOSE_CONV_2D, [data, *rest, shape(2, 3, 8, 2), *options, NHWC], [tensor(F32)])[0]
    other = run(Op.TRANSPOSE_CONV_2D, [turned, *rest, shape(2, 2, 3, 8), *options, NCHW], [tensor(F32)])[0]
    assert plain.shape == (2, 3, 8, 2)
    np.testing.assert_array_equal(other, plain.transpose(0, 3, 1, 2))


def test_no_batches_give_an_empty_output() -> None:
    inputs = [(tensor(F32), np.zeros((0, 2, 2, 3))), (tensor(F32), np.zeros((1, 3, 3, 3))), floats((1,), 0)]
    rest = [*padding(0, 0), int32(1), int32(1), int32(NONE), NHWC]
    assert run_kernel(Op.TRANSPOSE_CONV_2D, [*inputs, *rest], [tensor(F32)])[0].shape == (0, 4, 4, 1)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ([*padding(-1, 0), int32(1), int32(1), int32(NONE)], "padding_left is -1"),
        ([*padding(2, 2), int32(1), int32(1), int32(NONE)], "the output's width is 0"),
        ([*padding(0, 0), int32(0), int32(1), int32(NONE)], "stride_width is 0"),
        ([*padding(0, 0), int32(1), int32(1), int32(4)], "activation is 4"),
        ([shape(1, 4), int32(SAME), int32(1), int32(1), int32(NONE)], r"output_shape has 2 elements; it must have 4"),
    ],
)
def test_broken_constraint_fails_the_run(rest: list[Value], message: str) -> None:
    with pytest.raises(HalError, match=message):
        transpose_row(*rest, NHWC)


@pytest.mark.parametrize(
    ("kernel", "bias", "message"),
    [
        (floats((1, 1, 1, 2), 1, 2), floats((1,), 1), "filter has 2 input channels, input 1"),
        (floats((1, 1, 1, 1), 1), floats((2,), 1, 2), r"bias has shape \[2\]"),
        (floats((1, 1, 1), 1), floats((1,), 1), "filter has rank 3"),
    ],
)
def test_wrong_weights_fail_the_run(kernel: Value, bias: Value, message: str) -> None:
    rest = [*padding(0, 0), int32(1), int32(1), int32(NONE), NHWC]
    with pytest.raises(HalError, match=message):
        run(Op.TRANSPOSE_CONV_2D, [floats((1, 1, 1, 1), 1), kernel, bias, *rest], [tensor(F32)])


@settings(max_examples=30, deadline=None)
@given(
    size=st.tuples(*[st.integers(1, 4)] * 3),
    kernel_size=st.tuples(*[st.integers(1, 4)] * 3),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    same=st.booleans(),
    quantized=st.booleans(),
)
def test_agrees_with_litert(
    size: tuple[int, ...], kernel_size: tuple[int, ...], strides: tuple[int, int], same: bool, quantized: bool
) -> None:
    rng = np.random.default_rng(size)
    height, width, depth_in = size
    depth_out, rows, columns = kernel_size
    down, across = strides if same else (min(strides[0], rows), min(strides[1], columns))
    output_size = (
        (height * down, width * across) if same else ((height - 1) * down + rows, (width - 1) * across + columns)
    )
    result = np.array([2, *output_size, depth_out], np.int32)
    image, bias, output = tensor(F32, (2, *size)), tensor(F32, (depth_out,)), tensor(F32, (2, *output_size, depth_out))
    kernel = tensor(F32, (depth_out, rows, columns, depth_in))
    if quantized:
        image = tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, image.dimensions, 0.05, int(rng.integers(-128, 128)))
        scales = rng.uniform(0.001, 0.02, depth_out)
        kernel = tensor(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, kernel.dimensions, channels=list(scales))
        bias, output = (
            tensor(T.TENSOR_INT32, (depth_out,)),
            tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, output.dimensions, 0.1),
        )
    values = [sample(rng, operand) for operand in (image, kernel, bias)]
    arguments: list[Value] = list(zip((image, kernel, bias), values, strict=True))
    rest = [int32(SAME if same else VALID), int32(across), int32(down), int32(NONE), NHWC]
    ours = run(Op.TRANSPOSE_CONV_2D, [*arguments, shape(*result), *rest], [output])[0]

    s = schema()
    options = s.TransposeConvOptionsT()
    options.padding = s.Padding.SAME if same else s.Padding.VALID
    options.strideW, options.strideH = across, down
    wanted_first = [(tensor(T.TENSOR_INT32, (4,)), result), (kernel, values[1]), (image, values[0]), (bias, values[2])]
    theirs = litert("TRANSPOSE_CONV", options, wanted_first, [output])[0]
    if quantized:
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
