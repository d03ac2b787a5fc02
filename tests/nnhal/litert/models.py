"""Models for the programs: signatures, resource variables, constants, quantization and shapes that may change."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tests.nnhal.tflite.build import Branch, Op, Tensor, build, ints, options, schema

Ports = Mapping[str, int]
"""Indexes of tensors by the names of a signature."""


def signature(key: str, subgraph: int, inputs: Ports, outputs: Ports) -> Any:
    """Return a signature of a file."""
    table = schema.SignatureDefT()
    table.signatureKey, table.subgraphIndex = key, subgraph
    table.inputs, table.outputs = _ports(inputs), _ports(outputs)
    return table


def _ports(ports: Ports) -> list[Any]:
    tables = []
    for name, index in ports.items():
        tables.append(schema.TensorMapT())
        tables[-1].name, tables[-1].tensorIndex = name, index
    return tables


def dynamic(shape: tuple[int, ...], name: str, *, type_: str = "FLOAT32") -> Tensor:
    """Return a tensor whose first dimension is unknown."""
    return Tensor(shape, type_, name=name, more={"shapeSignature": [-1, *shape[1:]]})


@cache
def affine() -> bytes:
    """Return `y = 2 * x + [1, 2, 3]` for x [-1, 3], with an intermediate tensor and one signature."""
    x, scaled, y = dynamic((1, 3), "x"), Tensor((1, 3), name="scaled"), dynamic((1, 3), "y")
    factor, offset = Tensor((1,), data=[2], name="factor"), Tensor((3,), data=[1, 2, 3], name="offset")
    return build(
        Op("MUL", [x, factor], [scaled], options("Mul")),
        Op("ADD", [scaled, offset], [y], options("Add")),
        inputs=[x],
        signatureDefs=[signature("serving_default", 0, {"x": 0}, {"y": 4})],
    )


@cache
def several_signatures() -> bytes:
    """Return a model with the signatures `add` and `scale`, whose inputs are not in the order of their names."""
    a, b, total = dynamic((1, 2), "a"), dynamic((1, 2), "b"), dynamic((1, 2), "sum")
    x, factor, scaled = Tensor((4,), name="x"), Tensor((1,), data=[3], name="factor"), Tensor((4,), name="scaled")
    other = Branch([Op("MUL", [x, factor], [scaled], options("Mul"))], [x], [scaled])
    return build(
        Op("ADD", [a, b], [total], options("Add"), branches=[other]),
        inputs=[b, a],
        signatureDefs=[
            signature("scale", 1, {"x": 0}, {"scaled": 2}),
            signature("add", 0, {"left": 1, "above": 0}, {"total": 2}),
        ],
    )


@cache
def counter() -> bytes:
    """Return a model that adds its input to a resource variable, and a signature that only reads it."""
    handle, x, before, after = Tensor((), "RESOURCE"), Tensor((1, 2), name="x"), Tensor((1, 2)), Tensor((1, 2))
    total = Tensor((1, 2), name="total")
    other_handle, value, copy = Tensor((), "RESOURCE"), Tensor((1, 2)), Tensor((1, 2), name="value")
    zero = Tensor((1,), data=[0])
    one, first = Tensor((1, 2), data=[1, 1]), Tensor((), "RESOURCE")
    start = Branch(
        [
            Op("VAR_HANDLE", [], [first], options("VarHandle", sharedName="sum")),
            Op("ASSIGN_VARIABLE", [first, one], [], options("AssignVariable")),
        ],
        [],
        [],
    )
    read = Branch(
        [
            Op("VAR_HANDLE", [], [other_handle], options("VarHandle", sharedName="sum")),
            Op("READ_VARIABLE", [other_handle], [value], options("ReadVariable")),
            Op("ADD", [value, zero], [copy], options("Add")),
        ],
        [],
        [copy],
    )
    return build(
        Op("CALL_ONCE", [], [], options("CallOnce", initSubgraphIndex=1), branches=[start, read]),
        Op("VAR_HANDLE", [], [handle], options("VarHandle", sharedName="sum")),
        Op("READ_VARIABLE", [handle], [before], options("ReadVariable")),
        Op("ADD", [before, x], [after], options("Add")),
        Op("ASSIGN_VARIABLE", [handle, after], [], options("AssignVariable")),
        Op("ADD", [after, Tensor((1,), data=[0])], [total], options("Add")),
        inputs=[x],
        outputs=[total],
        signatureDefs=[signature("step", 0, {"x": 2}, {"total": 5}), signature("value", 2, {}, {"value": 3})],
    )


@cache
def quantized() -> bytes:
    """Return a fully connected layer of int8 with scales for each channel."""
    x = Tensor((2, 3), "INT8", scale=(0.5,), zero_point=(3,), name="x")
    weights = Tensor((2, 3), "INT8", [[1, 2, 3], [4, 5, 6]], (0.25, 0.5), (0, 0), name="weights")
    bias = Tensor((2,), "INT32", [1, 2], (0.125, 0.25), (0, 0), name="bias")
    y = Tensor((2, 2), "INT8", scale=(0.5,), zero_point=(-1,), name="y")
    return build(Op("FULLY_CONNECTED", [x, weights, bias], [y], options("FullyConnected")))


@cache
def scalars() -> bytes:
    """Return a sum of two scalars."""
    return build(Op("ADD", [Tensor((), name="a"), Tensor((), name="b")], [Tensor((), name="sum")], options("Add")))


@cache
def nameless() -> bytes:
    """Return a sum of inputs without names."""
    return build(Op("ADD", [Tensor((1, 3)), Tensor((3,))], [Tensor((1, 3))], options("Add")))


@cache
def passed_on() -> bytes:
    """Return a model with outputs that are an input, a constant, and another output."""
    x, y, constant = Tensor((1, 3), name="x"), Tensor((1, 3), name="y"), Tensor((3,), data=[1, 2, 3], name="constant")
    return build(Op("ADD", [x, constant], [y], options("Add")), outputs=[x, y, constant, y])


@cache
def wide() -> bytes:
    """Return a sum of int64, and its dimensions in another order."""
    a, b, total = (Tensor((2, 3), "INT64", name=name) for name in ("a", "b", "sum"))
    turned = Tensor((3, 2), "INT64", name="turned")
    return build(
        Op("ADD", [a, b], [total], options("Add")),
        Op("TRANSPOSE", [total, ints(1, 0)], [turned], options("Transpose")),
        outputs=[turned, total],
    )


@cache
def unknown_shape() -> bytes:
    """Return a model whose output has a shape that depends on values: the places of true elements."""
    flags, places = Tensor((4,), "BOOL", name="flags"), Tensor((1, 1), "INT64", name="places")
    return build(Op("WHERE", [flags], [places], options("Where")))


def floats(*shape: int, seed: int = 0) -> Any:
    """Return random values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
