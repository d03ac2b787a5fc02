"""Weights of types that NNAPI lacks run in regions, bit for bit as in LiteRT."""

from typing import Any

import numpy as np
import pytest

from nnhal.types import AnyArray
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options, pack, schema, unpack
from tests.nnhal.tflite.comparisons.against_litert import assert_runs_as_in_litert, run_litert

RNG = np.random.default_rng(5)
LIMITS = {"INT8": 127, "INT4": 7, "INT2": 1}
BIASES = {"FLOAT32": "FLOAT32", "INT8": "INT32", "INT16": "INT64"}
INTEGERS = {"INT8": np.int8, "INT16": np.int16}


def weights(type_: str, shape: tuple[int, ...], scales: int, dimension: int = 0) -> Tensor:
    values = RNG.integers(-LIMITS[type_], LIMITS[type_] + 1, shape)
    steps = tuple(float(np.float32(step)) for step in RNG.uniform(0.01, 0.1, scales))
    return Tensor(shape, type_, values, steps, (0,) * scales, dimension)


def activations(type_: str, shape: tuple[int, ...], scale: float = 0.05) -> Tensor:
    return Tensor(shape, type_) if type_ == "FLOAT32" else Tensor(shape, type_, None, (scale,), (0,))


def sample(type_: str, shape: tuple[int, ...]) -> AnyArray:
    if type_ == "FLOAT32":
        return RNG.standard_normal(shape).astype(np.float32)
    return RNG.integers(-100, 100, shape, INTEGERS[type_])


def fully_connected(type_: str, stored: str, channels: bool, **table: Any) -> Op:
    inputs = [activations(type_, (3, 32)), weights(stored, (8, 32), 8 if channels else 1), None]
    version = {"INT4": 10, "INT2": 14}.get(stored, 9)
    return Op(
        "FULLY_CONNECTED",
        inputs,
        [activations(type_, (3, 8), 0.5)],
        options("FullyConnected", **table),
        version=version,
    )


def bias(type_: str, filter_: Tensor) -> Tensor:
    """Return a bias with the scales that LiteRT's converter writes."""
    scales = () if type_ == "FLOAT32" else tuple(float(np.float32(0.05) * np.float32(step)) for step in filter_.scale)
    count = filter_.shape[filter_.dimension]
    return Tensor((count,), BIASES[type_], RNG.integers(-9, 9, count), scales, (0,) * len(scales))


def convolution(type_: str, stored: str, channels: bool) -> Op:
    filter_ = weights(stored, (8, 3, 3, 4), 8 if channels else 1)
    inputs = [activations(type_, (1, 6, 6, 4)), filter_, bias(type_, filter_)]
    table = options("Conv2D", strideW=1, strideH=1)
    return Op("CONV_2D", inputs, [activations(type_, (1, 6, 6, 8), 0.5)], table, version=7)


def depthwise(type_: str, stored: str, channels: bool) -> Op:
    filter_ = weights(stored, (1, 3, 3, 4), 4 if channels else 1, 3)
    inputs = [activations(type_, (1, 6, 6, 4)), filter_, bias(type_, filter_)]
    table = options("DepthwiseConv2D", strideW=1, strideH=1, depthMultiplier=1)
    return Op("DEPTHWISE_CONV_2D", inputs, [activations(type_, (1, 6, 6, 4), 0.5)], table, version=7)


def transposed(type_: str, stored: str, channels: bool) -> Op:
    inputs = [ints(1, 12, 12, 8), weights(stored, (8, 2, 2, 4), 8 if channels else 1), activations(type_, (1, 6, 6, 4))]
    table = options("TransposeConv", strideW=2, strideH=2)
    return Op("TRANSPOSE_CONV", inputs, [activations(type_, (1, 12, 12, 8), 0.5)], table, version=4)


UNDEFINED = {
    ("convolution", "FLOAT32", "INT2"),
    ("convolution", "INT16", "INT2"),
    ("depthwise", "INT16", "INT4"),
    ("depthwise", "INT16", "INT2"),
}
"""Kernels that read packed weights as bytes, and so outside of the constant."""


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("stored", LIMITS)
@pytest.mark.parametrize("type_", BIASES)
@pytest.mark.parametrize("make", [fully_connected, convolution, depthwise, transposed])
def test_layer(make: Any, type_: str, stored: str, channels: bool) -> None:
    if (make.__name__, type_, stored) in UNDEFINED:
        pytest.skip("LiteRT reads packed weights as bytes")
    op = make(type_, stored, channels)
    data, (x,) = build(op), [sample(type_, each.shape) for each in op.inputs if each and each.data is None]
    assert_as_in_litert(data, x)


def assert_as_in_litert(data: bytes, x: AnyArray, *, exact: bool = False) -> None:
    """Compare the results unless LiteRT does not run the model."""
    try:
        run_litert(data, [x])
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"LiteRT does not run it: {str(error).strip().splitlines()[0]}")
    assert_runs_as_in_litert(data, [x], exact=exact)


@pytest.mark.parametrize("stored", LIMITS)
def test_asymmetric_inputs_of_a_hybrid_layer(stored: str) -> None:
    op = fully_connected("FLOAT32", stored, True, asymmetricQuantizeInputs=True)
    assert_as_in_litert(build(op), sample("FLOAT32", (3, 32)), exact=True)


@pytest.mark.parametrize("block", [32, 64])
def test_scales_of_blocks(block: int) -> None:
    """FULLY_CONNECTED with int4 weights of which each block has a scale, in another tensor."""
    stored, scales = (
        weights("INT4", (8, 128), 1),
        Tensor((8, 128 // block), "FLOAT16", RNG.uniform(0.01, 0.1, (8, 128 // block))),
    )
    x, y = Tensor((3, 128)), Tensor((3, 8))
    layer = Op("FULLY_CONNECTED", [x, stored, None], [y], options("FullyConnected"), version=12)
    unread = Op("CAST", [scales], [Tensor(scales.shape)], options("Cast"))  # the only way to add the tensor
    model = unpack(build(layer, unread, inputs=[x], outputs=[y]))
    graph = model.subgraphs[0]
    graph.operators.pop()
    details = schema.BlockwiseQuantizationT()
    details.scales = next(i for i, each in enumerate(graph.tensors) if each.type == schema.TensorType.FLOAT16)
    details.zeroPoints, details.blockSize = -1, block
    quantization = schema.QuantizationParametersT()
    quantization.detailsType, quantization.details = schema.QuantizationDetails.BlockwiseQuantization, details
    graph.tensors[1].quantization = quantization
    assert_runs_as_in_litert(pack(model), [sample("FLOAT32", (3, 128))])


@pytest.mark.parametrize("stored", LIMITS)
@pytest.mark.parametrize("scales", [1, 101])
def test_embedding_lookup(stored: str, scales: int) -> None:
    op = Op(
        "EMBEDDING_LOOKUP", [Tensor((3,), "INT32"), weights(stored, (101, 16), scales)], [Tensor((3, 16))], version=4
    )
    assert_runs_as_in_litert(build(op), [np.array([7, 0, 100], np.int32)], exact=True)


@pytest.mark.parametrize("stored", ["INT4", "INT2", "FLOAT16", "BFLOAT16"])
def test_constant_that_another_operator_widens(stored: str) -> None:
    if stored in LIMITS:
        constant, name, table = weights(stored, (4, 6), 4), "DEQUANTIZE", None
    else:
        values = RNG.standard_normal((4, 6)).astype(np.float32)
        constant = Tensor((4, 6), stored, values if stored == "FLOAT16" else values.view(np.uint32) >> 16)
        name, table = "CAST", options("Cast")
    wide = Tensor((4, 6))
    data = build(
        Op(name, [constant], [wide], table, version=6),
        Op("ADD", [wide, Tensor((4, 6))], [Tensor((4, 6))], options("Add")),
    )
    assert_as_in_litert(data, sample("FLOAT32", (4, 6)), exact=True)
