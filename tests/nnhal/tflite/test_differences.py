"""Differences between TFLite and NNAPI that the import handles: quantization, biases, constants and shapes."""

from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnhal import tflite
from nnhal.types import (
    AnyArray,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    SymmPerChannelQuantParams,
)
from nnhal_driver.validation.model import validate_model
from tests.nnhal.tflite.build import (
    Op,
    Tensor,
    arguments,
    build,
    ints,
    listing,
    options,
    pack,
    quant,
    schema,
    unpack,
    value_of,
)

CONV = options("Conv2D", padding=schema.Padding.VALID, strideW=1, strideH=1)
INPUT_SCALE, FILTER_SCALE = 0.1, 0.3
BIAS_SCALE = float(np.float32(np.float32(INPUT_SCALE) * np.float32(FILTER_SCALE)))


def parse_valid(data: bytes) -> Model:
    """Import a model and validate it as a device does."""
    model = tflite.parse(data)
    validate_model(model)
    return model


def convolution(filter_: Tensor, bias: Tensor | None, type_: str = "INT8") -> Model:
    image = quant((1, 2, 2, 3), INPUT_SCALE, 5, type_)
    inputs = [image, filter_, bias] if bias else [image, filter_]
    return parse_valid(build(Op("CONV_2D", inputs, [quant((1, 2, 2, filter_.shape[0]), 0.7, 1, type_)], CONV)))


def filter_of(channels: int = 2, zero_point: int = 0, type_: str = "INT8") -> Tensor:
    values = np.arange(channels * 3).reshape(channels, 1, 1, 3)
    return Tensor(values.shape, type_, values, (FILTER_SCALE,), (zero_point,))


# ---- Types and quantization -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tensor, expected",
    [
        (Tensor((2,), "FLOAT32"), Operand(OperandType.TENSOR_FLOAT32, (2,))),
        (Tensor((2,), "FLOAT32", scale=(0.5,), zero_point=(3,)), Operand(OperandType.TENSOR_FLOAT32, (2,))),
        (Tensor((2,), "INT32"), Operand(OperandType.TENSOR_INT32, (2,))),
        (Tensor((2,), "INT32", scale=(0.5,), zero_point=(0,)), Operand(OperandType.TENSOR_INT32, (2,))),
        (Tensor((2,), "INT64"), Operand(OperandType.TENSOR_INT32, (2,))),
        (Tensor((2,), "BOOL"), Operand(OperandType.TENSOR_BOOL8, (2,))),
        (Tensor((2,), "FLOAT16"), Operand(OperandType.TENSOR_FLOAT16, (2,))),
        (quant((2,), 0.5, 3), Operand(OperandType.TENSOR_QUANT8_ASYMM, (2,), 0.5, 3)),
        (quant((2,), 0.5, -3, "INT8"), Operand(OperandType.TENSOR_QUANT8_ASYMM_SIGNED, (2,), 0.5, -3)),
        (quant((2,), 0.5, 0, "INT16"), Operand(OperandType.TENSOR_QUANT16_SYMM, (2,), 0.5)),
        (Tensor((2,), "UINT8"), Operand(OperandType.TENSOR_QUANT8_ASYMM, (2,), 1.0)),
        (Tensor((2, 3), more={"shapeSignature": [-1, 3]}), Operand(OperandType.TENSOR_FLOAT32, (2, 3))),
        (Tensor(()), Operand(OperandType.TENSOR_FLOAT32, (1,))),
    ],
)
def test_operand_of(tensor: Tensor, expected: Operand) -> None:
    other = Tensor((2,))
    model = parse_valid(build(Op("EXP", [other], [Tensor((2,))]), inputs=[tensor, other]))
    assert model.main.operands[0] == Operand(
        expected.type, expected.dimensions, expected.scale, expected.zero_point, OperandLifeTime.SUBGRAPH_INPUT
    )


def test_filter_per_channel() -> None:
    filter_ = filter_of()
    filter_.scale, filter_.zero_point = (0.25, 0.5), (0, 0)
    model = convolution(filter_, Tensor((2,), "INT32", [7, 8], (0.1, 0.2), (0, 0)))
    _, weights, bias, *_ = arguments(model)
    assert weights.type == OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
    assert (weights.scale, weights.zero_point) == (0.0, 0)
    assert weights.extra_params == SymmPerChannelQuantParams((0.25, 0.5), 0)
    assert (bias.type, bias.scale) == (OperandType.TENSOR_INT32, 0.0)
    assert value_of(model, bias).tolist() == [7, 8]


def test_filter_per_channel_of_depthwise_convolution() -> None:
    filter_ = Tensor((1, 1, 1, 3), "INT8", [1, 2, 3], (0.25, 0.5, 0.75), (0, 0, 0), dimension=3)
    depthwise = options("DepthwiseConv2D", padding=schema.Padding.SAME, strideW=1, strideH=1)
    operator = Op(
        "DEPTHWISE_CONV_2D",
        [quant((1, 2, 2, 3), type_="INT8"), filter_],
        [quant((1, 2, 2, 3), type_="INT8")],
        depthwise,
    )
    assert arguments(parse_valid(build(operator)))[1].extra_params == SymmPerChannelQuantParams((0.25, 0.5, 0.75), 3)


@pytest.mark.parametrize(
    "type_, zero_point, expected",
    [("INT8", -4, OperandType.TENSOR_QUANT8_ASYMM_SIGNED), ("UINT8", 4, OperandType.TENSOR_QUANT8_ASYMM)],
)
def test_filter_per_tensor(type_: str, zero_point: int, expected: OperandType) -> None:
    weights = arguments(convolution(filter_of(zero_point=zero_point, type_=type_), None, type_))[1]
    scale = float(np.float32(FILTER_SCALE))
    assert (weights.type, weights.scale, weights.zero_point) == (expected, scale, zero_point)


# ---- Biases ---------------------------------------------------------------------------------------------


def test_bias_scale_is_the_product_of_input_and_filter_scale() -> None:
    model = convolution(filter_of(), Tensor((2,), "INT32", [7, 8], (0.9,), (0,)))
    bias = arguments(model)[2]
    assert (bias.type, bias.scale, bias.dimensions) == (OperandType.TENSOR_INT32, BIAS_SCALE, (2,))
    assert value_of(model, bias).tolist() == [7, 8]


@pytest.mark.parametrize("channels", [2, 33])
def test_missing_quantized_bias_is_zeros(channels: int) -> None:
    """33 zeros are too large to be copied."""
    model = convolution(filter_of(channels), None)
    bias = arguments(model)[2]
    assert (bias.type, bias.scale, bias.dimensions) == (OperandType.TENSOR_INT32, BIAS_SCALE, (channels,))
    assert not value_of(model, bias).any()


@pytest.mark.parametrize("bias", [[], [None]])
def test_missing_real_bias_is_zeros(bias: list[Tensor | None]) -> None:
    inputs = [Tensor((2, 3)), Tensor((4, 3), data=np.ones(12)), *bias]
    model = parse_valid(build(Op("FULLY_CONNECTED", inputs, [Tensor((2, 4))], options("FullyConnected"))))
    operand = arguments(model)[2]
    assert (operand.type, operand.dimensions, operand.scale) == (OperandType.TENSOR_FLOAT32, (4,), 0.0)
    assert not value_of(model, operand).any()


def test_bias_shared_by_two_operators_has_a_scale_for_each() -> None:
    bias, first, second = ints(7, 8), filter_of(), filter_of()
    second.scale = (0.6,)
    image = quant((1, 2, 2, 3), INPUT_SCALE, 5, "INT8")
    results = [quant((1, 2, 2, 2), 0.7, 1, "INT8") for _ in range(2)]
    operators = [
        Op("CONV_2D", [image, filter_, bias], [result], CONV)
        for filter_, result in zip((first, second), results, strict=True)
    ]
    model = parse_valid(build(*operators, outputs=results))
    scales = [arguments(model, i)[2].scale for i in range(2)]
    assert scales == [BIAS_SCALE, float(np.float32(INPUT_SCALE) * np.float32(0.6))]


# ---- Constants ------------------------------------------------------------------------------------------


def test_constants_above_128_bytes_remain_in_the_file() -> None:
    small, large = (Tensor((size,), "UINT8", np.arange(size), (0.5,), (3,)) for size in (128, 129))
    inputs = [quant((4,)), small, large]
    model = parse_valid(build(Op("CONCATENATION", inputs, [quant((261,))], options("Concatenation", axis=0))))
    first, second = arguments(model)[1:3]
    assert (first.lifetime, first.location.length) == (OperandLifeTime.CONSTANT_COPY, 128)
    assert (second.lifetime, second.location.length) == (OperandLifeTime.CONSTANT_POOL, 129)
    assert value_of(model, first).tolist() == list(range(128))
    assert value_of(model, second).tolist() == list(range(129))
    assert len(model.pools) == 1


def owner_of(array: AnyArray) -> object:
    """Return the object that owns the memory of an array."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def test_pool_is_the_file_without_a_copy(tmp_path: Path) -> None:
    operator = Op("ADD", [Tensor((1, 40)), Tensor((1, 40), data=np.arange(40))], [Tensor((1, 40))])
    data = build(operator)
    (tmp_path / "add.tflite").write_bytes(data)
    model = tflite.load(tmp_path / "add.tflite")
    (pool,) = model.pools
    assert isinstance(pool, Memory)
    assert pool.view.tobytes() == data
    assert isinstance(owner_of(pool.buffer), mmap)
    assert value_of(model, arguments(model)[1]).tolist() == [list(range(40))]
    parsed = tflite.parse(data).pools[0]
    assert isinstance(parsed, Memory)
    assert np.shares_memory(parsed.buffer, np.frombuffer(data, np.uint8))


def test_no_pool_without_large_constants() -> None:
    assert parse_valid(build(Op("ADD", [Tensor((3,)), Tensor((3,), data=[1, 2, 3])], [Tensor((3,))]))).pools == ()


def test_copied_constants_are_aligned_to_4_bytes() -> None:
    flags = [Tensor((1, 3), "BOOL", [[1, 0, 1]]), Tensor((1, 3), "BOOL", [[0, 0, 1]])]
    first = Tensor((1, 3), "BOOL")
    operators = [
        Op("LOGICAL_AND", [Tensor((1, 3), "BOOL"), flags[0]], [first]),
        Op("LOGICAL_OR", [first, flags[1]], [Tensor((1, 3), "BOOL")]),
    ]
    model = parse_valid(build(*operators))
    copied = [arguments(model, i)[1] for i in range(2)]
    assert [operand.location.offset for operand in copied] == [0, 4]
    assert value_of(model, copied[1]).tolist() == [[False, False, True]]


@pytest.mark.parametrize("count", [3, 100])
def test_int64_constants_become_int32(count: int) -> None:
    values = np.arange(count) - 50
    operator = Op(
        "MAXIMUM", [Tensor((count,), "INT64"), Tensor((count,), "INT64", values)], [Tensor((count,), "INT64")]
    )
    model = parse_valid(build(operator))
    constant = arguments(model)[1]
    assert constant.type == OperandType.TENSOR_INT32
    assert value_of(model, constant).tolist() == values.tolist()


def test_converted_constants_have_a_separate_pool() -> None:
    operators = [
        Op("MAXIMUM", [Tensor((50,), "INT64"), Tensor((50,), "INT64", np.arange(50))], [Tensor((50,), "INT64")]),
        Op("ADD", [Tensor((50,), "INT32"), Tensor((50,), "INT32", np.arange(50))], [Tensor((50,), "INT32")]),
    ]
    model = parse_valid(build(*operators, outputs=[operator.outputs[0] for operator in operators]))
    converted, stored = arguments(model, 0)[1], arguments(model, 1)[1]
    assert (converted.location.pool_index, stored.location.pool_index) == (0, 1)
    assert value_of(model, converted).tolist() == value_of(model, stored).tolist() == list(range(50))


def test_equal_scalars_are_one_operand() -> None:
    table = options("Pool2D", padding=0, strideW=3, strideH=3, filterWidth=3, filterHeight=3)
    model = parse_valid(build(Op("AVERAGE_POOL_2D", [Tensor((1, 9, 9, 1))], [Tensor((1, 3, 3, 1))], table)))
    assert len(set(model.main.operations[0].inputs[2:6])) == 1


# ---- Operators ------------------------------------------------------------------------------------------


def test_fully_connected_that_keeps_dimensions_is_followed_by_a_reshape() -> None:
    weights = Tensor((4, 3), "UINT8", np.ones(12), (0.5,), (0,))
    table = options("FullyConnected", keepNumDims=True)
    model = parse_valid(build(Op("FULLY_CONNECTED", [quant((1, 5, 3)), weights], [quant((1, 5, 4), 0.7, 9)], table)))
    temporary = model.main.operations[0].outputs[0]
    assert [line.replace(f"tmp{temporary}", "tmp") for line in listing(model)] == [
        "FULLY_CONNECTED in0 const [0,0,0,0] 0 -> tmp",
        "RESHAPE tmp [1,5,4] -> out0",
    ]
    flat = model.main.operands[temporary]
    assert (flat.dimensions, flat.scale, flat.zero_point) == ((5, 4), float(np.float32(0.7)), 9)


def test_requantization_uses_float32_in_between() -> None:
    model = parse_valid(build(Op("QUANTIZE", [quant((2, 3), 0.5, 3)], [quant((2, 3), 0.25, -4, "INT8")])))
    assert [line.replace("tmp1", "tmp") for line in listing(model)] == ["DEQUANTIZE in0 -> tmp", "QUANTIZE tmp -> out0"]
    assert arguments(model, 0)[1] == Operand(OperandType.TENSOR_FLOAT32, (2, 3))


@pytest.mark.parametrize("type_, zero_point", [("UINT8", 0), ("INT8", -128)])
def test_quantized_softmax(type_: str, zero_point: int) -> None:
    table = options("Softmax", beta=1.0)
    operator = Op("SOFTMAX", [quant((2, 3), type_=type_)], [quant((2, 3), 1 / 256, zero_point, type_)], table)
    assert arguments(parse_valid(build(operator)))[-1].zero_point == zero_point


# ---- Graphs ---------------------------------------------------------------------------------------------


def test_inputs_outputs_and_names_are_in_the_order_of_the_file() -> None:
    a, b, c, d = (Tensor((2,), name=name) for name in "abcd")
    operators = [Op("EXP", [b], [c]), Op("ADD", [a, c], [d])]
    model = parse_valid(build(*operators, inputs=[b, a], outputs=[d, c]))
    assert (model.input_names, model.output_names) == (("b", "a"), ("d", "c"))
    assert listing(model) == ["EXP in0 -> out1", "ADD in1 out1 0 -> out0"]
    assert model.main.input_indexes == (0, 1)


def test_unused_tensors_are_left_out() -> None:
    model = unpack(build(Op("EXP", [Tensor((2,))], [Tensor((2,))])))
    unused = schema.TensorT()
    unused.type = schema.TensorType.STRING
    model.subgraphs[0].tensors.append(unused)
    assert len(parse_valid(pack(model)).main.operands) == 2


def test_operator_code_only_in_the_new_field() -> None:
    """Some writers leave the old field at 0, which is ADD."""
    model = unpack(build(Op("EXP", [Tensor((2,))], [Tensor((2,))])))
    model.operatorCodes[0].deprecatedBuiltinCode = 0
    assert listing(tflite.parse(pack(model))) == ["EXP in0 -> out0"]


def test_constants_after_the_flatbuffer() -> None:
    """Files of more than 2 GiB keep their constants after the flatbuffer, by offset and size."""
    values = np.arange(40, dtype=np.float32)
    data = build(Op("ADD", [Tensor((1, 40)), Tensor((1, 40), data=values + 1)], [Tensor((1, 40))]))
    model = unpack(data)
    model.buffers[1].data, model.buffers[1].offset, model.buffers[1].size = None, 7, 160
    model.buffers[1].offset = len(pack(model))
    whole = pack(model) + values.tobytes()
    imported = parse_valid(whole)
    assert value_of(imported, arguments(imported)[1]).tolist() == [values.tolist()]
    with pytest.raises(
        tflite.TfliteError, match=f"is truncated: buffer 1 ends at byte {len(whole)} of {len(whole) - 1}"
    ):
        tflite.parse(whole[:-1])
