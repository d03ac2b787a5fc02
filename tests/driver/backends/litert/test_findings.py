"""What random graphs found: one small test each."""

import numpy as np
import pytest

from nnhal.types import Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.random_graphs import Graph
from tests.driver.backends.litert.samples import B8, F32, I8, PER_CHANNEL, U8
from tests.driver.backends.litert.test_random_graphs import hold_alike
from tests.driver.one_operation import int_tensor, tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


def applied(graph: Graph, type_: Op, inputs: list[int], output: Operand) -> int:
    made = graph.one(type_, inputs, output)
    assert made is not None
    return made


@pytest.mark.parametrize(
    "operand", [tensor(I8, (2, 3), 0.0625, 127), tensor(PER_CHANNEL, (2, 3), channels=[0.5, 0.1])], ids=["I8", "PC"]
)
def test_a_constant_that_is_dequantized_into_an_output(operand: Operand) -> None:
    """XNNPACK unpacks it once, for the operators that read it, and never writes the output."""
    graph = Graph()
    real = applied(graph, Op.DEQUANTIZE, [graph.fixed(operand, np.arange(6).reshape(2, 3))], tensor(F32))
    size = applied(graph, Op.ABS, [real], tensor(F32))
    x = graph.given(tensor(T.TENSOR_FLOAT32, (2, 3)), np.zeros((2, 3)))
    largest = applied(graph, Op.MAXIMUM, [size, x], tensor(F32))
    assert hold_alike(graph.sample([real, largest])) == {Op.DEQUANTIZE: 1, Op.ABS: 1, Op.MAXIMUM: 1}


@pytest.mark.parametrize("type_", [Op.ADD, Op.SUB, Op.MUL])
@pytest.mark.parametrize(("shape", "constant"), [((1, 1), (1, 1, 1)), ((2, 3), (1, 1, 1)), ((3,), (1, 1))], ids=str)
def test_a_constant_of_one_element_and_a_higher_rank(
    type_: Op, shape: tuple[int, ...], constant: tuple[int, ...]
) -> None:
    """With a fused activation the engine gave quantised outputs the rank of the other argument."""
    graph = Graph()
    x = graph.given(tensor(U8, shape, 0.5, 3), np.full(shape, 217))
    one, relu = graph.fixed(tensor(U8, constant, 0.5, 3), np.full(constant, 9)), graph.fixed(Operand(T.INT32), 1)
    made = applied(graph, type_, [x, one, relu], tensor(U8, (), 60.0, 3))
    assert hold_alike(graph.sample([made])) == {type_: 1}


@pytest.mark.parametrize("type_", [Op.LESS_EQUAL, Op.EQUAL])
@pytest.mark.parametrize("constants", [1, 2])
def test_equal_values_on_different_zero_points(type_: Op, constants: int) -> None:
    """XNNPACK makes scale * stored - scale * zero point of constants, which rounds otherwise than NNAPI's values."""
    graph, stored = Graph(), np.arange(-128, 128)
    moved = np.clip(stored - 7 + 33, -128, 127)
    x, y = tensor(I8, (256,), 0.1, 7), tensor(I8, (256,), 0.1, 33)
    inputs = [graph.given(x, stored) if constants == 1 else graph.fixed(x, stored), graph.fixed(y, moved)]
    made = applied(graph, type_, inputs, tensor(B8))
    assert hold_alike(graph.sample([made])) == {type_: 1}


@pytest.mark.parametrize("type_", [T.TENSOR_FLOAT32, T.TENSOR_FLOAT16])
def test_a_zero_after_an_overflow(type_: T) -> None:
    """The engine multiplied infinity by 0; NNAPI's product is 0 as soon as one factor is."""
    graph, large = Graph(), np.finfo(np.float16 if type_ == T.TENSOR_FLOAT16 else np.float32).max
    x = graph.given(tensor(type_, (2, 3)), [[large, large, 0], [2, 3, 4]])
    axis, keep = graph.fixed(*int_tensor([1])), graph.fixed(Operand(T.BOOL), False)
    made = applied(graph, Op.REDUCE_PROD, [x, axis, keep], tensor(type_))
    assert hold_alike(graph.sample([made])) == {Op.REDUCE_PROD: 1}
