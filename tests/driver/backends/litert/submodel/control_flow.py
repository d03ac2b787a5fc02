"""Models with IF and WHILE."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tests.nnhal.tflite.build import Op, Tensor, build, options, pack, schema, unpack


def join(*graphs: bytes) -> bytes:
    """Return a model whose subgraphs are the only subgraphs of the given models, in order."""
    joined = unpack(graphs[0])
    for data in graphs[1:]:
        model = unpack(data)
        codes, buffers = len(joined.operatorCodes), len(joined.buffers)
        for tensor in model.subgraphs[0].tensors:
            tensor.buffer = tensor.buffer and tensor.buffer + buffers
        for operator in model.subgraphs[0].operators:
            operator.opcodeIndex += codes
        joined.operatorCodes += model.operatorCodes
        joined.buffers += model.buffers
        joined.subgraphs += model.subgraphs
    return pack(joined)


def counter(value: int | None = None, type_: str = "INT32") -> Tensor:
    """Return a scalar integer; a constant if it has a value."""
    return Tensor((), type_, value)


def condition(counter_: Tensor, others: Sequence[Tensor], limit: Tensor | None = None, operator: str = "LESS") -> bytes:
    """Return the condition of a WHILE that compares a counter with a constant."""
    kind = {"LESS": "Less", "LESS_EQUAL": "LessEqual", "GREATER": "Greater", "EQUAL": "Equal"}[operator]
    op = Op(operator, [counter_, limit or counter(5)], [Tensor((), "BOOL")], options(kind))
    return build(op, inputs=[counter_, *others])


def body(counter_: Tensor, values: Tensor, step: Tensor | None = None, **more: Any) -> bytes:
    """Return the body of a WHILE that raises the counter and doubles a tensor."""
    result, total = Tensor(counter_.shape, counter_.type), Tensor(values.shape, values.type)
    add = options("Add", **more)
    return build(
        Op("ADD", [counter_, step or counter(1)], [result], add),
        Op("ADD", [values, values], [total], options("Add")),
        inputs=[counter_, values],
        outputs=[result, total],
    )


def loop(condition_: bytes, body_: bytes, start: Tensor | None = None, values: Tensor | None = None) -> bytes:
    """Return a model with one WHILE."""
    values = values or Tensor((2, 3))
    op = Op(
        "WHILE",
        [start or counter(0), values],
        [x_like(start or counter()), x_like(values)],
        options("While", condSubgraphIndex=1, bodySubgraphIndex=2),
    )
    inputs = [values] if start is None or start.data is not None else [start, values]
    return join(build(op, inputs=inputs), condition_, body_)


def counted_loop(**more: Any) -> bytes:
    """Return a model with a WHILE that doubles a tensor five times."""
    return loop(condition(counter(), [Tensor((2, 3))]), body(counter(), Tensor((2, 3)), **more))


def branch(then: bytes, otherwise: bytes, values: Tensor | None = None) -> bytes:
    """Return a model with one IF."""
    values = values or Tensor((2, 3))
    table = options("If", thenSubgraphIndex=1, elseSubgraphIndex=2)
    op = Op("IF", [Tensor((), "BOOL"), values], [Tensor(values.shape, values.type)], table)
    return join(build(op), then, otherwise)


def unary(name: str, tensor: Tensor, table: Any = None) -> bytes:
    """Return a model of one elementwise operator."""
    return build(Op(name, [tensor], [Tensor(tensor.shape, tensor.type)], table))


@cache
def control_flow_models() -> tuple[bytes, ...]:
    """Return valid models with IF and WHILE."""
    x = Tensor((2, 3))
    limit = condition(counter(), [x])
    negate = unary("NEG", x, options("Neg"))
    wide = counter(None, "INT64")
    return (
        counted_loop(),
        loop(limit, body(counter(), x, counter(2))),
        loop(condition(counter(), [x], operator="LESS_EQUAL"), body(counter(), x)),
        loop(
            condition(wide, [x], counter(3, "INT64")),
            body(wide, x, counter(1, "INT64")),
            counter(0, "INT64"),
        ),
        _both_conditions(),
        branch(negate, unary("FLOOR", x)),
        branch(negate, build(Op("MUL", [x, Tensor((3,), data=np.ones(3))], [x_like(x)], options("Mul")))),
        join(_chain_with_branch(), negate, unary("ABS", x, options("Abs"))),
    )


def x_like(tensor: Tensor) -> Tensor:
    """Return a new tensor of the same type and shape."""
    return Tensor(tensor.shape, tensor.type)


def _chain_with_branch() -> bytes:
    x, middle, result = Tensor((2, 3)), Tensor((2, 3)), Tensor((2, 3))
    table = options("If", thenSubgraphIndex=1, elseSubgraphIndex=2)
    return build(
        Op("EXP", [x], [middle], options("Exp")),
        Op("IF", [Tensor((), "BOOL"), middle], [result], table),
        Op("ADD", [result, x], [Tensor((2, 3))], options("Add")),
    )


def _both_conditions() -> bytes:
    """Return a loop with a second limit that is an invariant argument."""
    i, limit, values = counter(), counter(), Tensor((2,))
    first, second = Tensor((), "BOOL"), Tensor((), "BOOL")
    test = build(
        Op("LESS", [i, limit], [first], options("Less")),
        Op("GREATER", [counter(7), i], [second], options("Greater")),
        Op("LOGICAL_AND", [first, second], [Tensor((), "BOOL")], options("LogicalAnd")),
        inputs=[i, limit, values],
    )
    following, total = counter(), Tensor((2,))
    step = build(
        Op("ADD", [counter(1), i], [following], options("Add")),
        Op("SQUARE", [values], [total], options("Square")),
        inputs=[i, limit, values],
        outputs=[following, limit, total],
    )
    table = options("While", condSubgraphIndex=1, bodySubgraphIndex=2)
    start = Tensor((2,))
    op = Op("WHILE", [counter(0), counter(4), start], [counter(), counter(), Tensor((2,))], table)
    return join(build(op, inputs=[start]), test, step)


__all__ = [
    "body",
    "branch",
    "condition",
    "control_flow_models",
    "counted_loop",
    "counter",
    "join",
    "loop",
    "schema",
    "unary",
]
