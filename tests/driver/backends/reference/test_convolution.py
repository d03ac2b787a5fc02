"""CONV_2D and DEPTHWISE_CONV_2D on CpuRef: cases worked out by hand, and against LiteRT."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.types import SymmPerChannelQuantParams
from tests.driver.one_operation import Value, boolean, int32, run, tensor
from tests.litert import litert, schema

SAME, VALID = 1, 2
NONE, RELU, RELU1, RELU6 = range(4)


def conv(image: Value, kernel: Value, bias: Value, *rest: Value) -> list[Value]:
    return [image, kernel, bias, *rest]


def test_valid_padding_by_hand() -> None:
    image = tensor(T.TENSOR_FLOAT32, (1, 3, 3, 1)), np.arange(9).reshape(1, 3, 3, 1)
    kernel = tensor(T.TENSOR_FLOAT32, (1, 2, 2, 1)), [[[[1], [2]], [[3], [4]]]]
    bias = tensor(T.TENSOR_FLOAT32, (1,)), [0.5]
    out = run(
        Op.CONV_2D,
        conv(image, kernel, bias, int32(VALID), int32(1), int32(1), int32(NONE)),
        [tensor(T.TENSOR_FLOAT32, (1, 2, 2, 1))],
    )
    # 0*1 + 1*2 + 3*3 + 4*4 + 0.5
    np.testing.assert_array_equal(out[0].reshape(2, 2), [[27.5, 37.5], [57.5, 67.5]])


def test_explicit_padding_counts_as_zero() -> None:
    image = tensor(T.TENSOR_FLOAT32, (1, 1, 1, 1)), [[[[3]]]]
    kernel = tensor(T.TENSOR_FLOAT32, (1, 2, 3, 1)), np.arange(6).reshape(1, 2, 3, 1)
    bias = tensor(T.TENSOR_FLOAT32, (1,)), [0]
    # left 2, right 0, top 1, bottom 0: only the window's last cell lies on the image
    paddings = [int32(2), int32(0), int32(1), int32(0)]
    out = run(
        Op.CONV_2D,
        conv(image, kernel, bias, *paddings, int32(1), int32(1), int32(NONE)),
        [tensor(T.TENSOR_FLOAT32, (1, 1, 1, 1))],
    )
    assert out[0].item() == 15


def test_nchw_is_nhwc_transposed() -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((2, 5, 4, 3)).astype(np.float32)
    kernel = tensor(T.TENSOR_FLOAT32, (2, 3, 3, 3)), rng.standard_normal((2, 3, 3, 3))
    bias = tensor(T.TENSOR_FLOAT32, (2,)), [1, -1]
    rest = [int32(SAME), int32(2), int32(1), int32(RELU)]
    nhwc = tensor(T.TENSOR_FLOAT32, data.shape), data
    nchw = tensor(T.TENSOR_FLOAT32, (2, 3, 5, 4)), data.transpose(0, 3, 1, 2)
    shapes = (2, 5, 2, 2), (2, 2, 5, 2)
    plain = run(Op.CONV_2D, conv(nhwc, kernel, bias, *rest), [tensor(T.TENSOR_FLOAT32, shapes[0])])[0]
    turned = run(Op.CONV_2D, conv(nchw, kernel, bias, *rest, boolean(True)), [tensor(T.TENSOR_FLOAT32, shapes[1])])[0]
    np.testing.assert_array_equal(turned, plain.transpose(0, 3, 1, 2))


def test_wrong_bias_scale_fails_the_run() -> None:
    image = tensor(T.TENSOR_QUANT8_ASYMM, (1, 1, 1, 1), 0.5), [[[[3]]]]
    kernel = tensor(T.TENSOR_QUANT8_ASYMM, (1, 1, 1, 1), 0.5), [[[[3]]]]
    bias = tensor(T.TENSOR_INT32, (1,), 0.3), [0]
    with pytest.raises(HalError, match=r"bias has scale 0\.3; it must be input scale"):
        run(
            Op.CONV_2D,
            conv(image, kernel, bias, int32(VALID), int32(1), int32(1), int32(NONE)),
            [tensor(T.TENSOR_QUANT8_ASYMM, (1, 1, 1, 1), 1)],
        )


def test_depthwise_with_multiplier_by_hand() -> None:
    image = tensor(T.TENSOR_FLOAT32, (1, 1, 2, 2)), [[[[1, 2], [3, 4]]]]
    kernel = tensor(T.TENSOR_FLOAT32, (1, 1, 2, 4)), [[[[1, 2, 3, 4], [5, 6, 7, 8]]]]
    bias = tensor(T.TENSOR_FLOAT32, (4,)), [0, 0, 0, 100]
    rest = [int32(VALID), int32(1), int32(1), int32(2), int32(NONE)]
    out = run(Op.DEPTHWISE_CONV_2D, [image, kernel, bias, *rest], [tensor(T.TENSOR_FLOAT32, (1, 1, 1, 4))])
    np.testing.assert_array_equal(out[0].ravel(), [1 + 15, 2 + 18, 6 + 28, 8 + 32 + 100])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_int8_per_channel_agrees_with_litert(data: st.DataObject) -> None:
    draw = data.draw
    depthwise = draw(st.booleans(), "depthwise")
    height, width, depth_in = draw(st.integers(3, 7)), draw(st.integers(3, 7)), draw(st.integers(1, 5))
    rows, columns, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    depth_out = depth_in * draw(st.integers(1, 2)) if depthwise else draw(st.integers(1, 5))
    scheme = draw(st.sampled_from([SAME, VALID]))
    activation = draw(st.sampled_from([NONE, RELU, RELU6]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scales = [float(np.float32(s)) for s in rng.uniform(0.001, 0.02, depth_out)]
    image = tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (1, height, width, depth_in), 0.05, int(rng.integers(-128, 128)))
    kernel_shape = (1, rows, columns, depth_out) if depthwise else (depth_out, rows, columns, depth_in)
    axis = 3 if depthwise else 0
    kernel = replace(
        tensor(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, kernel_shape),
        extra_params=SymmPerChannelQuantParams(tuple(scales), axis),
    )
    out_shape = tuple(
        -(-n // stride) if scheme == SAME else (n - f) // stride + 1 for n, f in ((height, rows), (width, columns))
    )
    output = tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (1, *out_shape, depth_out), 0.1, int(rng.integers(-128, 128)))
    values = (
        rng.integers(-128, 128, image.dimensions, np.int8),
        rng.integers(-127, 128, kernel_shape, np.int8),
        rng.integers(-1000, 1000, depth_out, np.int32),
    )
    arguments = [(image, values[0]), (kernel, values[1]), (tensor(T.TENSOR_INT32, (depth_out,)), values[2])]
    middle = [int32(scheme), int32(stride), int32(stride)]
    extra = [int32(depth_out // depth_in)] if depthwise else []
    type_ = Op.DEPTHWISE_CONV_2D if depthwise else Op.CONV_2D
    ours = run(type_, [*arguments, *middle, *extra, int32(activation)], [output])

    s = schema()
    options = s.DepthwiseConv2DOptionsT() if depthwise else s.Conv2DOptionsT()
    options.padding = s.Padding.SAME if scheme == SAME else s.Padding.VALID
    options.strideW = options.strideH = stride
    options.fusedActivationFunction = {NONE: 0, RELU: 1, RELU6: 3}[activation]
    if depthwise:
        options.depthMultiplier = depth_out // depth_in
    theirs = litert(type_.name, options, arguments, [output])
    np.testing.assert_array_equal(ours[0], theirs[0])
