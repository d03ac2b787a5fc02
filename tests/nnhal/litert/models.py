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
    """Return a model that adds its input to a resource variable, and signatures that only read or only assign it."""
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
    assigned, new, double = Tensor((), "RESOURCE"), Tensor((1, 2), name="new"), Tensor((1, 2), name="double")
    assign = Branch(
        [
            Op("VAR_HANDLE", [], [assigned], options("VarHandle", sharedName="sum")),
            Op("ASSIGN_VARIABLE", [assigned, new], [], options("AssignVariable")),
            Op("ADD", [new, new], [double], options("Add")),
        ],
        [new],
        [double],
    )
    return build(
        Op("CALL_ONCE", [], [], options("CallOnce", initSubgraphIndex=1), branches=[start, read, assign]),
        Op("VAR_HANDLE", [], [handle], options("VarHandle", sharedName="sum")),
        Op("READ_VARIABLE", [handle], [before], options("ReadVariable")),
        Op("ADD", [before, x], [after], options("Add")),
        Op("ASSIGN_VARIABLE", [handle, after], [], options("AssignVariable")),
        Op("ADD", [after, Tensor((1,), data=[0])], [total], options("Add")),
        inputs=[x],
        outputs=[total],
        signatureDefs=[
            signature("step", 0, {"x": 2}, {"total": 5}),
            signature("value", 2, {}, {"value": 3}),
            signature("assign", 3, {"new": 1}, {"double": 2}),
        ],
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


@cache
def texts() -> bytes:
    """Return a model that reorders strings by constant indexes, and compares them with constants."""
    words, order = dynamic((2,), "words", type_="STRING"), Tensor((2,), "INT32", [1, 0], name="order")
    known, swapped = Tensor((2,), "STRING", ["spam", "héllo"], name="known"), dynamic((2,), "swapped", type_="STRING")
    matches = Tensor((2,), "BOOL", name="matches")
    return build(
        Op("GATHER", [words, order], [swapped], options("Gather")),
        Op("EQUAL", [swapped, known], [matches], options("Equal")),
        inputs=[words],
        outputs=[swapped, matches],
    )


@cache
def vocabulary() -> bytes:
    """Return a classifier of words with a hash table, and a signature for the size of the table."""
    table = options("Hashtable", tableId=7, keyDtype=schema.TensorType.STRING, valueDtype=schema.TensorType.INT64)
    new, handle, other = (Tensor((), "RESOURCE", name=name) for name in ("new", "handle", "other"))
    keys, values = Tensor((3,), "STRING", ["a", "bb", "ccc"]), Tensor((3,), "INT64", [1, 2, 3])
    word, default, number = Tensor((2,), "STRING", name="word"), Tensor((1,), "INT64", [-1]), Tensor((2,), "INT64")
    score, doubled, size = Tensor((2,)), Tensor((2,), name="score"), Tensor((1,), "INT64", name="size")
    fill = [Op("HASHTABLE", [], [new], table), Op("HASHTABLE_IMPORT", [new, keys, values], [])]
    count = [Op("HASHTABLE", [], [other], table), Op("HASHTABLE_SIZE", [other], [size])]
    cast = options("Cast", inDataType=schema.TensorType.INT64, outDataType=schema.TensorType.FLOAT32)
    branches = [Branch(fill, [], []), Branch(count, [], [size])]
    return build(
        Op("CALL_ONCE", [], [], options("CallOnce", initSubgraphIndex=1), branches=branches),
        Op("HASHTABLE", [], [handle], table),
        Op("HASHTABLE_FIND", [handle, word, default], [number]),
        Op("CAST", [number], [score], cast),
        Op("MUL", [score, Tensor((1,), data=[2])], [doubled], options("Mul")),
        inputs=[word],
        outputs=[doubled],
        signatureDefs=[signature("classify", 0, {"word": 1}, {"score": 5}), signature("size", 2, {}, {"size": 1})],
    )


@cache
def counter_and_texts() -> bytes:
    """Return a counter in a resource variable, and a signature that adds the number of equal strings to it."""
    handle, x, before, after = Tensor((), "RESOURCE"), Tensor((2,), name="x"), Tensor((2,)), Tensor((2,), name="after")
    add = [
        Op("VAR_HANDLE", [], [handle], options("VarHandle", sharedName="sum")),
        Op("READ_VARIABLE", [handle], [before], options("ReadVariable")),
        Op("ADD", [before, x], [after], options("Add")),
        Op("ASSIGN_VARIABLE", [handle, after], [], options("AssignVariable")),
    ]
    other, word, same = Tensor((), "RESOURCE"), Tensor((2,), "STRING", name="word"), Tensor((2,), "BOOL")
    number, old, new = Tensor((2,), name="number"), Tensor((2,)), Tensor((2,), name="new")
    cast = options("Cast", inDataType=schema.TensorType.BOOL, outDataType=schema.TensorType.FLOAT32)
    count = [
        Op("EQUAL", [word, Tensor((2,), "STRING", ["a", "b"])], [same], options("Equal")),
        Op("CAST", [same], [number], cast),
        Op("VAR_HANDLE", [], [other], options("VarHandle", sharedName="sum")),
        Op("READ_VARIABLE", [other], [old], options("ReadVariable")),
        Op("ADD", [old, number], [new], options("Add")),
        Op("ASSIGN_VARIABLE", [other, new], [], options("AssignVariable")),
    ]
    start = Tensor((), "RESOURCE")
    fill = [
        Op("VAR_HANDLE", [], [start], options("VarHandle", sharedName="sum")),
        Op("ASSIGN_VARIABLE", [start, Tensor((2,), data=[1, 1])], [], options("AssignVariable")),
    ]
    branches = [Branch(fill, [], []), Branch(count, [word], [new])]
    return build(
        Op("CALL_ONCE", [], [], options("CallOnce", initSubgraphIndex=1), branches=branches),
        *add,
        inputs=[x],
        outputs=[after],
        signatureDefs=[signature("add", 0, {"x": 2}, {"after": 3}), signature("count", 2, {"word": 0}, {"new": 6})],
    )


@cache
def state_and_texts() -> bytes:
    """Return a layer with a state, and strings that only change their shape."""
    state = Tensor((1, 6), more={"isVariable": True})
    source, result = Tensor((1, 2), name="source"), Tensor((1, 3), name="result")
    weights, time = Tensor((3, 2), data=np.ones((3, 2))), Tensor((3, 2), data=np.ones((3, 2)))
    word, column = Tensor((2,), "STRING", name="word"), Tensor((2, 1), "STRING", name="column")
    return build(
        Op("SVDF", [source, weights, time, None, state], [result], options("SVDF", rank=1)),
        Op("RESHAPE", [word, ints(2, 1)], [column], options("Reshape", newShape=[2, 1])),
        inputs=[source, word],
        outputs=[result, column],
    )


@cache
def few_bits(type_: str) -> bytes:
    """Return a model whose input and output have elements of less than a byte, with a constant of the same type."""
    x, y = (Tensor(shape, type_, None, (0.5,), (0,), name=name) for name, shape in (("x", (2, 3)), ("y", (6,))))
    return build(Op("RESHAPE", [x, ints(6)], [y], options("Reshape", newShape=[6])))


@cache
def packed_weights(type_: str) -> bytes:
    """Return a fully connected layer whose weights have less than a byte, an odd number of them."""
    weights = Tensor((3, 3), type_, [[1, 0, -2], [1, -2, 0], [-1, 1, 1]], (0.5,), (0,), name="weights")
    return build(
        Op("FULLY_CONNECTED", [Tensor((1, 3), name="x"), weights, None], [Tensor((1, 3))], options("FullyConnected"))
    )


def floats(*shape: int, seed: int = 0) -> Any:
    """Return random values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
