"""CpuAcc against CpuRef on random image graphs with several inputs and outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Subgraph,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.support.comparison import assert_close, run
from tests.driver.backends.litert.support.samples import F16, F32, I32, U8
from tests.driver.one_operation import sample, tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

KINDS = (F32, F16, U8, T.TENSOR_QUANT8_ASYMM_SIGNED)
SCALE = 0.1
"""Scale of every quantized tensor, so that an error of one step remains one step."""


@dataclass
class GraphBuilder:
    """Graph under construction. All tensors are [batches, height, width, channels]."""

    draw: st.DrawFn
    operands: list[Operand] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    images: list[int] = field(default_factory=list)

    def add(self, operand: Operand, lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE) -> int:
        self.operands.append(Operand(operand.type, operand.dimensions, operand.scale, operand.zero_point, lifetime))
        return len(self.operands) - 1

    def constant(self, operand: Operand, value: object) -> int:
        raw = np.asarray(value).astype(DTYPES[operand.type])
        location = DataLocation(0, len(self.data), raw.nbytes)
        self.data += raw.tobytes() + bytes(-raw.nbytes % 4)
        index = self.add(operand, OperandLifeTime.CONSTANT_COPY)
        self.operands[index] = replace(self.operands[index], location=location)
        return index

    def number(self, value: int) -> int:
        return self.constant(Operand(T.INT32), value)

    def vector(self, value: object) -> int:
        return self.constant(tensor(I32, np.shape(np.asarray(value))), value)

    def emit(self, type_: Op, inputs: Sequence[int], kind: T, shape: Sequence[int]) -> None:
        output = self.add(quantized(kind, shape))
        self.operations.append(Operation(type_, tuple(inputs), (output,)))
        self.images.append(output)

    def model(self, inputs: Sequence[int]) -> Model:
        outputs = tuple(i for i in self.images if i not in inputs and self.draw(st.booleans()))
        outputs = outputs or (self.images[-1],)
        for i in outputs:
            self.operands[i] = replace(self.operands[i], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
        main = Subgraph(tuple(self.operands), tuple(self.operations), tuple(inputs), outputs)
        return Model(main, operand_values=bytes(self.data))


def quantized(kind: T, shape: Sequence[int]) -> Operand:
    return tensor(kind, shape) if kind in (F32, F16) else tensor(kind, shape, SCALE, 128 if kind == U8 else 0)


Step = Callable[[GraphBuilder, int, T, tuple[int, ...]], None]


def relu(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    graph.emit(graph.draw(st.sampled_from([Op.RELU, Op.RELU6, Op.RELU1])), [x], kind, shape)


def add(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    others = [i for i in graph.images if (graph.operands[i].type, graph.operands[i].dimensions) == (kind, shape)]
    other = graph.draw(st.sampled_from(others))
    graph.emit(graph.draw(st.sampled_from([Op.ADD, Op.SUB])), [x, other, graph.number(0)], kind, shape)


def maximum(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    limits = graph.constant(quantized(kind, (1, 1, 1, shape[3])), np.arange(shape[3]))
    graph.emit(graph.draw(st.sampled_from([Op.MAXIMUM, Op.MINIMUM])), [x, limits], kind, shape)


def convolution(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    count = graph.draw(st.integers(1, 3))
    floats = kind in (F32, F16)
    random = np.random.default_rng(graph.draw(st.integers(0, 999)))
    weights_shape = (count, 1, 1, shape[3])
    weights = tensor(kind, weights_shape) if floats else tensor(kind, weights_shape, 0.01, 128 if kind == U8 else 0)
    product = float(np.float32(SCALE) * np.float32(0.01))
    bias = tensor(kind, (count,)) if floats else tensor(I32, (count,), product)
    arguments = [
        graph.constant(operand, np.abs(sample(random, operand)) if floats else sample(random, operand))
        for operand in (weights, bias)
    ]
    window = [graph.number(n) for n in (2, 1, 1, 0)]
    graph.emit(Op.CONV_2D, [x, *arguments, *window], kind, (*shape[:3], count))


def pool(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    window = [graph.number(n) for n in (1, 1, 1, 2, 2, 0)]
    graph.emit(graph.draw(st.sampled_from([Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D])), [x, *window], kind, shape)


def transpose(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    graph.emit(Op.TRANSPOSE, [x, graph.vector([0, 2, 1, 3])], kind, (shape[0], shape[2], shape[1], shape[3]))


def reshape(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    output_shape = (1, shape[0] * shape[1], shape[2], shape[3])
    graph.emit(Op.RESHAPE, [x, graph.vector(output_shape)], kind, output_shape)


def concatenation(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    graph.emit(Op.CONCATENATION, [x, x, graph.number(3)], kind, (*shape[:3], 2 * shape[3]))


def mean(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    graph.emit(Op.MEAN, [x, graph.vector([1, 2]), graph.number(1)], kind, (shape[0], 1, 1, shape[3]))


def pad(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    graph.emit(
        Op.PAD,
        [x, graph.vector([[0, 0], [1, 0], [0, 1], [0, 0]])],
        kind,
        (shape[0], shape[1] + 1, shape[2] + 1, shape[3]),
    )


def change_type(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    if kind in (F32, F16):
        graph.emit(Op.QUANTIZE, [x], graph.draw(st.sampled_from(KINDS[2:])), shape)
    else:
        graph.emit(Op.DEQUANTIZE, [x], graph.draw(st.sampled_from(KINDS[:2])), shape)


def reverse(graph: GraphBuilder, x: int, kind: T, shape: tuple[int, ...]) -> None:
    graph.emit(Op.REVERSE, [x, graph.vector([1])], kind, shape)


STEPS: tuple[Step, ...] = (
    relu, add, maximum, convolution, pool, transpose, reshape, concatenation, mean, pad, change_type, reverse,
)  # fmt: skip


@st.composite
def models(draw: st.DrawFn) -> tuple[Model, list[AnyArray]]:
    graph, inputs, arrays = GraphBuilder(draw), list[int](), list[AnyArray]()
    for _ in range(draw(st.integers(1, 2))):
        shape = tuple(draw(st.integers(1, 3)) for _ in range(4))
        operand = quantized(draw(st.sampled_from(KINDS)), shape)
        inputs.append(graph.add(operand, OperandLifeTime.SUBGRAPH_INPUT))
        arrays.append(sample(np.random.default_rng(draw(st.integers(0, 999))), operand))
        graph.images.append(inputs[-1])
    for _ in range(draw(st.integers(3, 12))):
        x = draw(st.sampled_from(graph.images[-3:]))
        operand = graph.operands[x]
        draw(st.sampled_from(STEPS))(graph, x, T(operand.type), operand.dimensions)
    return graph.model(inputs), arrays


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(sample_=models())
def test_graph(sample_: tuple[Model, list[AnyArray]]) -> None:
    model, arrays = sample_
    expected = run(model, arrays, "CpuRef")[1]
    placed, actual = run(model, arrays, "CpuAcc", "CpuRef")
    assert placed == {"CpuAcc"}
    steps = 2 * len(model.main.operations)
    is_quantized = any(operand.scale for operand in model.main.operands)
    for a, b in zip(actual, expected, strict=True):
        if b.dtype.kind == "f":
            # a DEQUANTIZE turns an error of a step into one of SCALE
            np.testing.assert_allclose(
                a.astype(np.float64), b.astype(np.float64), rtol=1e-2, atol=steps * SCALE if is_quantized else 2e-2
            )
        else:
            assert_close(a, b, steps)
