"""CONV_2D, DEPTHWISE_CONV_2D, GROUPED_CONV_2D on CpuRef: cases computed by hand, and comparison with LiteRT."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import AnyArray, ErrorStatus, OperandLifeTime, SymmPerChannelQuantParams
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import (
    Value,
    boolean,
    execute,
    int32,
    model_of,
    prepare,
    run,
    run_kernel,
    sample,
    tensor,
)

SAME, VALID = 1, 2
NONE, RELU, RELU1, RELU6 = range(4)
F32 = T.TENSOR_FLOAT32


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
    # left 2, right 0, top 1, bottom 0: only the window's last cell is inside the image
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


def sum_by_cells(image: AnyArray, kernel: AnyArray, dilation: int) -> AnyArray:
    """Compute a depthwise convolution with stride 1 and VALID padding, cell by cell."""
    _, rows, columns, _ = kernel.shape
    height, width = image.shape[1] - (rows - 1) * dilation, image.shape[2] - (columns - 1) * dilation
    parts = [
        image[:, i * dilation : i * dilation + height, j * dilation : j * dilation + width] * kernel[0, i, j]
        for i in range(rows)
        for j in range(columns)
    ]
    total: AnyArray = np.sum(parts, axis=0)
    return total


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 6, 3), (2, 5, 6, 1), (1, 2, 20000, 2)])
def test_depthwise_is_the_sum_over_cells(shape: tuple[int, ...], nchw: bool) -> None:
    """The cases cover rows that are joined, rows of one channel, and a row that is too long to join."""
    rng = np.random.default_rng(1)
    data, kernel = rng.integers(-9, 9, shape), rng.integers(-9, 9, (1, 2, 3, shape[3]))
    dilation = 2 if shape[1] > 2 else 1
    image = data.transpose(0, 3, 1, 2) if nchw else data
    inputs: list[Value] = [(tensor(F32, image.shape), image), (tensor(F32, kernel.shape), kernel), zeros(shape[3])]
    rest = [int32(VALID), int32(1), int32(1), int32(1), int32(NONE), boolean(nchw), int32(dilation), int32(dilation)]
    out = run(Op.DEPTHWISE_CONV_2D, [*inputs, *rest], [tensor(F32)])[0]
    expected = sum_by_cells(data, kernel, dilation)
    np.testing.assert_array_equal(out.transpose(0, 2, 3, 1) if nchw else out, expected)


def test_quantized_image_of_several_blocks() -> None:
    rng = np.random.default_rng(2)
    data, kernel = rng.integers(0, 256, (2, 200, 100, 4)), rng.integers(0, 256, (1, 1, 1, 4))
    inputs = [
        (tensor(T.TENSOR_QUANT8_ASYMM, data.shape, 0.5, 100), data),
        (tensor(T.TENSOR_QUANT8_ASYMM, kernel.shape, 0.5, 120), kernel),
        (tensor(T.TENSOR_INT32, (4,), 0.25), [5, -300, 0, 70]),
    ]
    rest = [int32(VALID), int32(1), int32(1), int32(1), int32(NONE)]
    out = run(Op.DEPTHWISE_CONV_2D, [*inputs, *rest], [tensor(T.TENSOR_QUANT8_ASYMM, (), 16, 128)])[0]
    # 0.5 * 0.5 / 16 = 1/2 * 2^-5: rounded twice, up at ties, then away from zero
    half = ((data - 100) * (kernel - 120) + np.array([5, -300, 0, 70], np.int64) + 1) >> 1
    expected = np.where(half < 0, -((16 - half) >> 5), (half + 16) >> 5) + 128
    np.testing.assert_array_equal(out, np.clip(expected, 0, 255))


@pytest.mark.parametrize("type_", [Op.CONV_2D, Op.DEPTHWISE_CONV_2D])
def test_one_model_takes_images_of_any_size(type_: Op) -> None:
    kernel, bias = (tensor(F32, (1, 2, 2, 1)), [[[[1], [2]], [[3], [4]]]]), zeros(1)
    multiplier = [int32(1)] if type_ == Op.DEPTHWISE_CONV_2D else []
    rest = [int32(SAME), int32(1), int32(1), *multiplier, int32(NONE)]
    model = model_of(type_, [(tensor(F32, (1, 0, 0, 1)), None), kernel, bias, *rest], [tensor(F32, (1, 0, 0, 1))])
    first = replace(model.main.operands[0], lifetime=OperandLifeTime.SUBGRAPH_INPUT)
    main = replace(model.main, operands=(first, *model.main.operands[1:]), input_indexes=(0,))
    outcome = prepare(replace(model, main=main))
    for height, width in [(2, 3), (3, 2), (2, 3), (4, 4)]:
        data = np.arange(height * width, dtype=np.float32).reshape(1, height, width, 1)
        below = np.pad(data, ((0, 0), (0, 1), (0, 1), (0, 0)))
        expected = sum_by_cells(below, np.array([[[[1], [2]], [[3], [4]]]]), 1)
        np.testing.assert_array_equal(execute(outcome, [data])[1][0], expected)


def test_grouped_by_hand() -> None:
    image = tensor(F32, (1, 1, 2, 4)), [[[[1, 2, 3, 4], [5, 6, 7, 8]]]]
    # one column, 2 groups of 2 channels, 1 filter each
    kernel = tensor(F32, (2, 1, 1, 2)), [[[[1, 10]]], [[[100, 1000]]]]
    rest = [int32(VALID), int32(1), int32(1), int32(2), int32(NONE)]
    bias = tensor(F32, (2,)), [0.5, 0]
    out = run(Op.GROUPED_CONV_2D, [image, kernel, bias, *rest, boolean(False)], [tensor(F32)])[0]
    np.testing.assert_array_equal(out, [[[[21.5, 4300], [65.5, 8700]]]])
    turned = tensor(F32, (1, 4, 1, 2)), [[[[1, 5]], [[2, 6]], [[3, 7]], [[4, 8]]]]
    out = run(Op.GROUPED_CONV_2D, [turned, kernel, bias, *rest, boolean(True)], [tensor(F32)])[0]
    np.testing.assert_array_equal(out, [[[[21.5, 65.5]], [[4300, 8700]]]])


def test_one_group_is_a_plain_convolution() -> None:
    rng = np.random.default_rng(0)
    operands = tensor(F32, (2, 5, 4, 3)), tensor(F32, (6, 3, 2, 3)), tensor(F32, (6,))
    inputs: list[Value] = [(operand, sample(rng, operand)) for operand in operands]
    padding = [int32(1), int32(0), int32(2), int32(1), int32(1), int32(2)]
    plain = run(Op.CONV_2D, [*inputs, *padding, int32(RELU1)], [tensor(F32)])[0]
    grouped = run(Op.GROUPED_CONV_2D, [*inputs, *padding, int32(1), int32(RELU1), boolean(False)], [tensor(F32)])[0]
    np.testing.assert_allclose(grouped, plain, rtol=1e-6, atol=1e-6)


def zeros(*shape: int) -> Value:
    return tensor(F32, shape), np.zeros(shape)


@pytest.mark.parametrize(
    ("image", "kernel", "groups", "message"),
    [
        (zeros(1, 2, 2, 4), zeros(2, 1, 1, 2), 0, "num_groups is 0"),
        (zeros(1, 2, 2, 4), zeros(3, 1, 1, 2), 2, "3 output channels, not a multiple of 2"),
        (zeros(1, 2, 2, 6), zeros(2, 1, 1, 2), 2, "2 input channels for each of 2 groups, input 6"),
        (zeros(1, 2, 2, 4), zeros(2, 1, 3, 2), 2, "larger than the padded image along width"),
        (zeros(1, 2, 4), zeros(2, 1, 1, 2), 2, "input has rank 3"),
    ],
)
def test_broken_grouped_constraint_fails_the_run(image: Value, kernel: Value, groups: int, message: str) -> None:
    bias = zeros(kernel[0].dimensions[0])
    rest = [int32(VALID), int32(1), int32(1), int32(groups), int32(NONE), boolean(False)]
    with pytest.raises(HalError, match=message):
        run(Op.GROUPED_CONV_2D, [image, kernel, bias, *rest], [tensor(F32)])


def test_no_batches() -> None:
    inputs = [zeros(0, 2, 2, 2), zeros(2, 1, 2, 2), zeros(2), int32(VALID), int32(1), int32(1)]
    assert run_kernel(Op.CONV_2D, [*inputs, int32(NONE)], [tensor(F32)])[0].shape == (0, 2, 1, 2)
    with pytest.raises(HalError, match="input has no elements") as caught:
        run_kernel(Op.GROUPED_CONV_2D, [*inputs, int32(1), int32(NONE), boolean(False)], [tensor(F32)])
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


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


@settings(max_examples=25, deadline=None)
@given(
    groups=st.integers(1, 3),
    sizes=st.tuples(*[st.integers(1, 3)] * 5),
    scheme=st.sampled_from([SAME, VALID]),
    quantized=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_grouped_agrees_with_litert(
    groups: int, sizes: tuple[int, ...], scheme: int, quantized: bool, seed: int
) -> None:
    """Per-channel int8 results must be equal, float results nearly equal."""
    rng = np.random.default_rng(seed)
    rows, columns, depth_group, per_group, stride = sizes
    depth_out = groups * per_group
    image = tensor(F32, (1, 5, 4, groups * depth_group))
    kernel = tensor(F32, (depth_out, rows, columns, depth_group))
    bias, output = tensor(F32, (depth_out,)), tensor(F32)
    if quantized:
        image = tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, image.dimensions, 0.05, int(rng.integers(-128, 128)))
        scales = rng.uniform(0.001, 0.02, depth_out)
        kernel = tensor(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, kernel.dimensions, channels=list(scales))
        bias, output = tensor(T.TENSOR_INT32, (depth_out,)), tensor(T.TENSOR_QUANT8_ASYMM_SIGNED, (), 0.1, 3)
    arguments = [(operand, sample(rng, operand)) for operand in (image, kernel, bias)]
    if quantized:
        arguments[1] = kernel, np.maximum(arguments[1][1], -127)
    rest = [int32(scheme), int32(stride), int32(stride), int32(groups), int32(RELU), boolean(False)]
    ours = run(Op.GROUPED_CONV_2D, [*arguments, *rest], [output])[0]

    s = schema()
    options = s.Conv2DOptionsT()
    options.padding = s.Padding.SAME if scheme == SAME else s.Padding.VALID
    options.strideW = options.strideH = stride
    options.fusedActivationFunction = 1
    theirs = litert("CONV_2D", options, arguments, [replace(output, dimensions=ours.shape)])[0]
    if quantized:
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
