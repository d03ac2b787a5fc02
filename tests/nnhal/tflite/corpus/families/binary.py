"""Further functions of two tensors: integer division, comparisons, logic, and sums of several tensors."""

from collections.abc import Iterator
from itertools import product

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import QUANTIZED, models, tensor, with_constants

SHAPES = [((2, 3), (2, 3)), ((2, 3), (3,)), ((1, 3), (2, 1)), ((), ()), ((2, 3), ()), ((1, 2, 3, 2, 2), (2, 2))]
TYPES = ("FLOAT32", "FLOAT16", "INT32", "INT64", "INT16", "INT8", "UINT8", "BOOL")
_SCALES = (0.001, 0.004, 0.05, 0.7, 0.99)
"""Scales of comparisons. From 1 on, LiteRT's kernel shifts by a negative number."""


@models("FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE", "MAXIMUM", "MINIMUM", "POW")
def pairs(name: str) -> Iterator[Op]:
    """Yield all types and broadcasting, constants, and plain integers."""
    bounds = {"low": 0, "high": 3} if name == "POW" else {}
    for type_, (first, second) in product(TYPES, SHAPES):
        op = Op(name, [tensor(type_, *first, **bounds), tensor(type_, *second, **bounds)], [tensor(type_)])
        yield op
        yield with_constants(op, 1)
    for type_ in ("FLOAT32", "INT32"):
        values = [-7, 7, -8, 8, 1, -1]
        divisors = [2, -2, -2, 2, -3, 3]
        yield Op(name, [tensor(type_, 6, values=values), tensor(type_, 6, values=divisors)], [tensor(type_)])
    for type_ in ("INT8", "UINT8", "INT16"):
        yield Op(name, [tensor(type_, 9, scale=0), tensor(type_, 9, scale=0, low=1)], [tensor(type_, scale=0)])
        for first_scale, second_scale, result in ((0.05, 0.1, 0.1), (0.05, 0.05, 0.1), (0.02, 0.7, 0.3)):
            operands = [tensor(type_, 4, 5, scale=scale) for scale in (first_scale, second_scale)]
            yield Op(name, operands, [tensor(type_, scale=result)])


@models("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def comparisons(name: str) -> Iterator[Op]:
    """Yield all types and broadcasting, constants, and many scales."""
    for type_, (first, second) in product(TYPES, SHAPES):
        bounds = {"low": -2, "high": 2} if type_ in ("INT32", "INT64") else {}
        op = Op(name, [tensor(type_, *first, **bounds), tensor(type_, *second, **bounds)], [tensor("BOOL")])
        yield op
        yield with_constants(op, 1)
    for type_ in ("INT8", "UINT8", "INT16"):
        low = -128 if type_ == "INT8" else 0
        if type_ != "INT16":
            yield Op(name, [tensor(type_, 9, scale=0), tensor(type_, 9, scale=0)], [tensor("BOOL")])
        for scale in _SCALES:
            every = tensor(type_, 256, 1, scale=scale, values=range(low, low + 256))
            other = tensor(type_, 1, 256, scale=scale, values=range(low, low + 256))
            yield Op(name, [every, other], [tensor("BOOL")])
        for first_scale, second_scale in product((0.05, 0.3), (0.05, 0.1)):
            zero_point = 0 if type_ == "INT16" else 3
            operands = [tensor(type_, 300, scale=s, zero_point=zero_point) for s in (first_scale, second_scale)]
            yield Op(name, operands, [tensor("BOOL")])


@models("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT")
def logic(name: str) -> Iterator[Op]:
    """Yield all shapes."""
    for first, second in SHAPES:
        operands = [tensor("BOOL", *first), tensor("BOOL", *second)][: 1 if name == "LOGICAL_NOT" else 2]
        op = Op(name, operands, [tensor("BOOL")])
        yield op
        yield with_constants(op, len(operands) - 1)


@models("ADD_N")
def add_n(name: str) -> Iterator[Op]:
    """Yield all types and several numbers of inputs."""
    for type_, count in product(("FLOAT32", "FLOAT16", "INT32", "INT64", "INT8"), (1, 2, 3, 5, 6, 7)):
        yield Op(name, [tensor(type_, 2, 3) for _ in range(count)], [tensor(type_)], options("AddN"))
    yield Op(name, [tensor("FLOAT32") for _ in range(3)], [tensor("FLOAT32")], options("AddN"))


@models("LEAKY_RELU")
def leaky_relu(name: str) -> Iterator[Op]:
    """Yield all types, slopes and scales."""
    for alpha in (0.2, 0.01, 0.0, 1.0, 1.7, -0.3):
        table = options("LeakyRelu", alpha=alpha)
        for shape in ((), (7,), (2, 3), (1, 4, 3, 2), (2, 1, 3, 2, 2)):
            yield Op(name, [tensor("FLOAT32", *shape)], [tensor("FLOAT32")], table)
        yield Op(name, [tensor("FLOAT16", 2, 3)], [tensor("FLOAT16")], table)
        for type_ in (*QUANTIZED, "INT16"):
            yield Op(name, [tensor(type_, 2, 3)], [tensor(type_)], table)
            for input_, result in ((0.05, 0.05), (0.1, 0.02), (0.02, 0.07), (0.0123, 0.0321), (0.004, 0.5)):
                every = tensor(type_, 500, scale=input_)
                yield Op(name, [every], [tensor(type_, scale=result, zero_point=0)], table)
