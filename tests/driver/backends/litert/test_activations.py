"""Quantized activations: they are fused into the operator before, or run as a clamp, with the same bits."""

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")

from nnhal import ModelBuilder
from nnhal.builder.graph import OperandRef
from nnhal.types import AnyArray, Model, Operand, SymmPerChannelQuantParams
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.litert.lowering import CONVERTERS
from tests.driver.backends.litert.support.comparison import run
from tests.driver.backends.litert.support.compiled import operators, prepare_on_engine
from tests.driver.one_operation import execute, tensor

ACTIVATIONS = {Op.RELU: 1, Op.RELU1: 2, Op.RELU6: 3}
SHAPE = (1, 6, 6, 4)
KINDS = {T.TENSOR_QUANT8_ASYMM_SIGNED: -10, T.TENSOR_QUANT8_ASYMM: 117}
"""Zero points by type."""


def image(kind: T, shape: tuple[int, ...] = SHAPE) -> Operand:
    return tensor(kind, shape, 0.05, KINDS[kind])


class Network(ModelBuilder):
    """Builder of models of one quantized image."""

    def __init__(self, kind: T, shape: tuple[int, ...] = SHAPE) -> None:
        super().__init__()
        self.image = image(kind, shape)
        self.x = self.input(kind, shape, scale=self.image.scale, zero_point=self.image.zero_point)

    def convolution(self, activation: int) -> OperandRef:
        weights = np.random.default_rng(1).integers(-127, 127, (4, 3, 3, 4)).astype(np.int8)
        scales = SymmPerChannelQuantParams((0.003, 0.002, 0.004, 0.003), 0)
        filter_ = self.constant(weights, T.TENSOR_QUANT8_SYMM_PER_CHANNEL, channel_quant=scales)
        return self.add(Op.CONV_2D, self.x, filter_, np.zeros(4, np.int32), 1, 1, 1, activation, output=self.image)

    def addition(self, activation: int) -> OperandRef:
        return self.add(Op.ADD, self.x, self.x, activation, output=self.image)

    def pooling(self, activation: int) -> OperandRef:
        return self.add(Op.AVERAGE_POOL_2D, self.x, 1, 1, 1, 3, 3, activation, output=self.image)


PRODUCERS: list[tuple[Callable[[Network, int], OperandRef], str]] = [
    (Network.convolution, "CONV_2D"),
    (Network.addition, "ADD"),
    (Network.pooling, "AVERAGE_POOL_2D"),
]


def values(kind: T, shape: tuple[int, ...] = SHAPE) -> AnyArray:
    dtype = np.uint8 if kind == T.TENSOR_QUANT8_ASYMM else np.int8
    limits = np.iinfo(dtype)
    return np.random.default_rng(2).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("type_", ACTIVATIONS)
@pytest.mark.parametrize(("producer", "operator"), PRODUCERS, ids=[name for _, name in PRODUCERS])
def test_activation_is_fused(producer: Callable[[Network, int], OperandRef], operator: str, type_: Op) -> None:
    kind = T.TENSOR_QUANT8_ASYMM_SIGNED
    separate, fused = Network(kind), Network(kind)
    separate.output(separate.add(type_, producer(separate, 0), output=separate.image))
    fused.output(producer(fused, ACTIVATIONS[type_]))
    outcome = prepare_on_engine(separate.build())
    assert operators(outcome) == [operator]
    array = values(kind)
    np.testing.assert_array_equal(execute(outcome, [array])[1][0], run(fused.build(), [array], "CpuAcc")[1][0])


def _read_twice() -> Model:
    network = Network(T.TENSOR_QUANT8_ASYMM)
    y = network.convolution(0)
    relu = network.add(Op.RELU, y, output=network.image)
    network.output(network.add(Op.ADD, relu, y, 0, output=network.image))
    return network.build()


def _output_of_the_model() -> Model:
    network = Network(T.TENSOR_QUANT8_ASYMM)
    y = network.convolution(0)
    network.output(y)
    network.output(network.add(Op.RELU, y, output=network.image))
    return network.build()


def _has_an_activation() -> Model:
    network = Network(T.TENSOR_QUANT8_ASYMM)
    network.output(network.add(Op.RELU1, network.convolution(ACTIVATIONS[Op.RELU]), output=network.image))
    return network.build()


@pytest.mark.parametrize("model", [_read_twice, _output_of_the_model, _has_an_activation])
def test_activation_is_not_fused_if_the_value_before_is_needed(model: Callable[[], Model]) -> None:
    outcome = prepare_on_engine(model(), "CpuAcc")
    assert "MAX_POOL_2D" in operators(outcome)
    array = values(T.TENSOR_QUANT8_ASYMM)
    expected = run(model(), [array], "CpuRef")[1]
    for actual, reference in zip(execute(outcome, [array])[1], expected, strict=True):
        # the convolution and the addition may each round differently
        assert np.abs(actual.astype(int) - reference).max() <= 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", ACTIVATIONS)
@pytest.mark.parametrize("shape", [SHAPE, (7, 11), (256,)], ids=str)
def test_clamp_equals_the_activation(
    kind: T, type_: Op, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(kind, shape)
    network.output(network.add(type_, network.x, output=network.image))
    model, array = network.build(), values(kind, shape)
    outcome = prepare_on_engine(model, "CpuAcc")
    assert "MAX_POOL_2D" in operators(outcome)
    actual = execute(outcome, [array])[1][0]
    np.testing.assert_array_equal(actual, run(model, [array], "CpuRef")[1][0])
    name = {Op.RELU: "RELU", Op.RELU1: "RELU_N1_TO_1", Op.RELU6: "RELU6"}[type_]
    monkeypatch.setitem(CONVERTERS, type_, lambda lower: lower.emit(name, [lower.input("input")], [lower.output()]))
    plain = prepare_on_engine(model, "CpuAcc")
    assert operators(plain) == [name]
    np.testing.assert_array_equal(actual, execute(plain, [array])[1][0])
