"""Models that tests divide."""

import numpy as np

from nnhal import ModelBuilder
from nnhal.builder import SubgraphBuilder
from nnhal.types import AnyArray, Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import tensor

F32 = tensor(T.TENSOR_FLOAT32, (2, 3))
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def chain(*types: Op) -> Model:
    """Return a model of operations of one input, one after the other."""
    builder = ModelBuilder()
    value = builder.input(T.TENSOR_FLOAT32, F32.dimensions, name="x")
    for type_ in types:
        value = builder.add(type_, value, output=F32)
    builder.output(value, name="y")
    return builder.build()


def branching() -> tuple[Model, list[AnyArray]]:
    """Return a model of two IFs, the second of which has a branch with another IF."""
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, F32.dimensions)
    condition = builder.input(T.TENSOR_BOOL8, (1,))

    def branch(type_: Op) -> SubgraphBuilder:
        with builder.subgraph() as graph:
            graph.output(graph.add(type_, graph.input(T.TENSOR_FLOAT32, F32.dimensions), output=F32))
        return graph

    first = builder.add(Op.IF, condition, branch(Op.ABS), branch(Op.NEG), x, output=F32)
    inner_then, inner_else = branch(Op.FLOOR), branch(Op.EXP)
    with builder.subgraph() as nested:
        value, inner_condition = nested.input(T.TENSOR_FLOAT32, F32.dimensions), nested.input(T.TENSOR_BOOL8, (1,))
        nested.output(nested.add(Op.IF, inner_condition, inner_then, inner_else, value, output=F32))
    with builder.subgraph() as plain:
        value, _ = plain.input(T.TENSOR_FLOAT32, F32.dimensions), plain.input(T.TENSOR_BOOL8, (1,))
        plain.output(plain.add(Op.SQRT, value, output=F32))
    builder.output(builder.add(Op.IF, condition, nested, plain, first, condition, output=F32))
    return builder.build(), [X]
