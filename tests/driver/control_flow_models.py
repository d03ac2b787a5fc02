"""Models with IF and WHILE."""

from collections.abc import Sequence

import numpy as np

from nnhal.types import AnyArray, DataLocation, Model, Operand, OperandLifeTime, Operation, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op

VALUES = np.array([0, 1], np.int32).tobytes() + np.array([1], np.float32).tobytes()
"""Constants of every graph: INT32 0 at 0, INT32 1 at 4, float [1] at 8."""


class GraphWriter:
    """Builder of a subgraph."""

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.operations: list[Operation] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def add(self, operand: Operand) -> int:
        self.operands.append(operand)
        return len(self.operands) - 1

    def input(self, type_: T = T.TENSOR_FLOAT32, shape: Sequence[int] = (1,)) -> int:
        self.inputs.append(self.add(Operand(type_, tuple(shape), lifetime=OperandLifeTime.SUBGRAPH_INPUT)))
        return self.inputs[-1]

    def constant(self, type_: T, offset: int, shape: Sequence[int] = ()) -> int:
        location = DataLocation(0, offset, 4)
        return self.add(Operand(type_, tuple(shape), lifetime=OperandLifeTime.CONSTANT_COPY, location=location))

    def reference(self, number: int) -> int:
        return self.add(Operand(T.SUBGRAPH, lifetime=OperandLifeTime.SUBGRAPH, location=DataLocation(0, number, 0)))

    def apply(
        self,
        type_: int,
        inputs: Sequence[int],
        kind: T = T.TENSOR_FLOAT32,
        shape: Sequence[int] = (1,),
        last: bool = True,
    ) -> int:
        lifetime = OperandLifeTime.SUBGRAPH_OUTPUT if last else OperandLifeTime.TEMPORARY_VARIABLE
        output = self.add(Operand(kind, tuple(shape), lifetime=lifetime))
        self.operations.append(Operation(type_, tuple(inputs), (output,)))
        if last:
            self.outputs.append(output)
        return output

    def graph(self) -> Subgraph:
        return Subgraph(tuple(self.operands), tuple(self.operations), tuple(self.inputs), tuple(self.outputs))


def adds_one(shape: Sequence[int] = (1,), type_: int = Op.ADD) -> Subgraph:
    """Return x -> x + 1."""
    w = GraphWriter()
    x, one, none = w.input(shape=shape), w.constant(T.TENSOR_FLOAT32, 8, (1,)), w.constant(T.INT32, 0)
    w.apply(type_, [x, one, none], shape=shape)
    return w.graph()


def doubles(shape: Sequence[int] = (1,)) -> Subgraph:
    """Return x -> x + x."""
    w = GraphWriter()
    x, none = w.input(shape=shape), w.constant(T.INT32, 0)
    w.apply(Op.ADD, [x, x, none], shape=shape)
    return w.graph()


def choose(then: Subgraph, otherwise: Subgraph, shape: Sequence[int] = (1,)) -> Model:
    """Return (condition, x) -> then(x) or otherwise(x)."""
    w = GraphWriter()
    condition, a, b, x = w.input(T.TENSOR_BOOL8), w.reference(0), w.reference(1), w.input(shape=shape)
    w.apply(Op.IF, [condition, a, b, x], shape=shape)
    return Model(w.graph(), (then, otherwise), VALUES)


def less_than(limit_is_input: bool = True) -> Subgraph:
    """Return (x, limit) -> x < limit."""
    w = GraphWriter()
    x, limit = w.input(), w.input()
    w.apply(Op.LESS if limit_is_input else Op.GREATER_EQUAL, [x, limit], T.TENSOR_BOOL8)
    return w.graph()


def counts() -> Subgraph:
    """Return (x, limit) -> x + 1."""
    w = GraphWriter()
    x, _, one, none = w.input(), w.input(), w.constant(T.TENSOR_FLOAT32, 8, (1,)), w.constant(T.INT32, 0)
    w.apply(Op.ADD, [x, one, none])
    return w.graph()


def loop(condition: Subgraph, body: Subgraph) -> Model:
    """Return (x, limit) -> x, counted up while the condition holds."""
    w = GraphWriter()
    c, b, x, limit = w.reference(0), w.reference(1), w.input(), w.input()
    w.apply(Op.WHILE, [c, b, x, limit])
    return Model(w.graph(), (condition, body), VALUES)


def nested(depth: int) -> Model:
    """Return (condition, x) -> x + 1, with one IF inside another; the innermost adds one."""

    def outer(number: int) -> Subgraph:
        w = GraphWriter()
        condition, a, b, x = w.input(T.TENSOR_BOOL8), w.reference(number), w.reference(number), w.input()
        w.apply(Op.IF, [condition, a, b, condition, x] if number < depth - 1 else [condition, a, b, x])
        return w.graph()

    return Model(outer(0), (*(outer(i) for i in range(1, depth)), adds_one()), VALUES)


def f(*values: float) -> AnyArray:
    return np.array(values, np.float32)
