"""Arithmetic of two tensors."""

from collections.abc import Iterator

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import models, tensor, with_constants

SHAPES = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((1, 3), (2, 1)),
    ((4,), (1,)),
    ((2, 3, 1, 4), (1, 5, 4)),
    ((1, 2, 3, 2, 2), (1, 2, 3, 2, 2)),
    ((2, 3), ()),
    ((), ()),
]
TYPES = ("FLOAT32", "INT8", "UINT8", "INT32", "INT64", "INT16", "FLOAT16")
_TABLES = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div"}
_SCALES = [(0.05, 0.05, 0.1), (0.02, 0.7, 0.3), (0.5, 0.5, 0.01), (1.0, 1.0, 0.5)]


@models("ADD", "SUB", "MUL", "DIV")
def arithmetic(name: str) -> Iterator[Op]:
    """Yield all types, broadcasting, fused activations, constants and scales."""
    table = _TABLES[name]
    for type_ in TYPES:
        low = 1 if name == "DIV" else None
        for a, b in SHAPES:
            second = tensor(type_, *b, low=low, high=low and 100)
            op = Op(name, [tensor(type_, *a), second], [tensor(type_, scale=None)], options(table))
            yield op
            yield with_constants(op, 1)
        for activation in (1, 2, 3):
            yield Op(
                name,
                [tensor(type_, 2, 3), tensor(type_, 3, low=low, high=low and 100)],
                [tensor(type_)],
                options(table, fusedActivationFunction=activation),
            )
    for type_ in ("INT8", "UINT8", "INT16"):
        for first, second_scale, result in _SCALES:
            yield Op(
                name,
                [tensor(type_, 4, 5, scale=first), tensor(type_, 4, 5, scale=second_scale)],
                [tensor(type_, scale=result, zero_point=0 if type_ == "INT16" else 3)],
                options(table),
            )
