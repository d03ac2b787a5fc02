"""Models, subgraphs and assertions for the tests of the builder."""

from collections.abc import Callable

import numpy as np
import pytest

from nnhal import HalError, ModelBuilder
from nnhal.builder import OperandRef, SubgraphBuilder
from nnhal.types import (
    AnyArray,
    ErrorStatus,
    Operand,
    OperandLifeTime,
    Subgraph,
    SymmPerChannelQuantParams,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.validation.model import validate_model
from tests.driver.one_operation import execute, prepare

F32 = T.TENSOR_FLOAT32
PAIR = Operand(F32, (2,))
FLAG = Operand(T.TENSOR_BOOL8, (1,))
CHANNELS = SymmPerChannelQuantParams((0.5, 0.25), 0)


def run(b: ModelBuilder, *inputs: AnyArray) -> list[AnyArray]:
    """Build a model, validate it and run it on a device in this process."""
    model = b.build()
    validate_model(model)
    return execute(prepare(model), inputs)[1]


def of_lifetime(subgraph: Subgraph, lifetime: OperandLifeTime) -> list[Operand]:
    return [operand for operand in subgraph.operands if operand.lifetime == lifetime]


QUANT = Operand(T.TENSOR_QUANT8_ASYMM, (2,), 0.5)


def adding(b: ModelBuilder, amount: float) -> SubgraphBuilder:
    """Return the subgraph x -> x + amount."""
    with b.subgraph() as graph:
        x = graph.input(F32, [2], name="x")
        graph.output(graph.add(Op.ADD, x, np.array([amount, amount], np.float32), 0, output=PAIR))
    return graph


def below(b: ModelBuilder, limit: float) -> SubgraphBuilder:
    """Return the subgraph x -> x[0] < limit."""
    with b.subgraph() as graph:
        x = graph.input(F32, [2])
        first = graph.add(Op.SLICE, x, [0], [1], output=Operand(F32, (1,)))
        graph.output(graph.add(Op.LESS, first, [limit], output=FLAG))
    return graph


def relu(b: ModelBuilder) -> tuple[OperandRef, OperandRef]:
    x = b.input(F32, [2])
    return x, b.add(Op.RELU, x, output=PAIR)


def assert_rejected(build: Callable[[], object], rule: str, complaint: str) -> None:
    with pytest.raises(HalError, match=complaint) as caught:
        build()
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, rule)
