"""Regression tests for errors that random graphs found."""

import numpy as np
import pytest

from nnhal.types import Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.support.comparison import assert_same_results
from tests.driver.backends.litert.support.random_graphs import Graph
from tests.driver.backends.litert.support.samples import B8, F32, I8, PER_CHANNEL, U8
from tests.driver.one_operation import int_tensor, tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


def apply(graph: Graph, type_: Op, inputs: list[int], output: Operand) -> int:
    """Add an operation that CpuRef must accept, and return its output."""
    index = graph.apply_single(type_, inputs, output)
    assert index is not None
    return index


@pytest.mark.parametrize(
    "operand", [tensor(I8, (2, 3), 0.0625, 127), tensor(PER_CHANNEL, (2, 3), channels=[0.5, 0.1])], ids=["I8", "PC"]
)
def test_constant_dequantized_into_an_output(operand: Operand) -> None:
    """XNNPACK unpacks the constant once, for the operators that read it, and never writes the output."""
    graph = Graph()
    real = apply(graph, Op.DEQUANTIZE, [graph.add_constant(operand, np.arange(6).reshape(2, 3))], tensor(F32))
    size = apply(graph, Op.ABS, [real], tensor(F32))
    x = graph.add_input(tensor(T.TENSOR_FLOAT32, (2, 3)), np.zeros((2, 3)))
    largest = apply(graph, Op.MAXIMUM, [size, x], tensor(F32))
    assert assert_same_results(graph.sample([real, largest])) == {Op.DEQUANTIZE: 1, Op.ABS: 1, Op.MAXIMUM: 1}


@pytest.mark.parametrize("type_", [Op.ADD, Op.SUB, Op.MUL])
@pytest.mark.parametrize(("shape", "constant"), [((1, 1), (1, 1, 1)), ((2, 3), (1, 1, 1)), ((3,), (1, 1))], ids=str)
def test_single_element_constant_of_higher_rank(type_: Op, shape: tuple[int, ...], constant: tuple[int, ...]) -> None:
    """With a fused activation the engine gave quantized outputs the rank of the other argument."""
    graph = Graph()
    x = graph.add_input(tensor(U8, shape, 0.5, 3), np.full(shape, 217))
    element = graph.add_constant(tensor(U8, constant, 0.5, 3), np.full(constant, 9))
    relu = graph.add_constant(Operand(T.INT32), 1)
    result = apply(graph, type_, [x, element, relu], tensor(U8, (), 60.0, 3))
    assert assert_same_results(graph.sample([result])) == {type_: 1}


@pytest.mark.parametrize("type_", [Op.LESS_EQUAL, Op.EQUAL])
@pytest.mark.parametrize("constants", [1, 2])
def test_equal_values_with_different_zero_points(type_: Op, constants: int) -> None:
    """XNNPACK computes scale * stored - scale * zero point for constants, which rounds differently from NNAPI."""
    graph, stored = Graph(), np.arange(-128, 128)
    shifted = np.clip(stored - 7 + 33, -128, 127)
    x, y = tensor(I8, (256,), 0.1, 7), tensor(I8, (256,), 0.1, 33)
    first = graph.add_input(x, stored) if constants == 1 else graph.add_constant(x, stored)
    result = apply(graph, type_, [first, graph.add_constant(y, shifted)], tensor(B8))
    assert assert_same_results(graph.sample([result])) == {type_: 1}


@pytest.mark.parametrize("type_", [T.TENSOR_FLOAT32, T.TENSOR_FLOAT16])
def test_zero_factor_after_an_overflow(type_: T) -> None:
    """The engine multiplied infinity by 0. NNAPI's product is 0 if any factor is 0."""
    graph, large = Graph(), np.finfo(np.float16 if type_ == T.TENSOR_FLOAT16 else np.float32).max
    x = graph.add_input(tensor(type_, (2, 3)), [[large, large, 0], [2, 3, 4]])
    axis, keep = graph.add_constant(*int_tensor([1])), graph.add_constant(Operand(T.BOOL), False)
    result = apply(graph, Op.REDUCE_PROD, [x, axis, keep], tensor(type_))
    assert assert_same_results(graph.sample([result])) == {Op.REDUCE_PROD: 1}
