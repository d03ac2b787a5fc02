"""What random graphs found: one small test each."""

import numpy as np
import pytest

from nnhal.types import Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.random_graphs import Graph
from tests.driver.backends.litert.samples import F32, I8, PER_CHANNEL
from tests.driver.backends.litert.test_random_graphs import hold_alike
from tests.driver.one_operation import tensor

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
