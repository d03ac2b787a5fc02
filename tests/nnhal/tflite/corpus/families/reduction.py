"""Reductions."""

from collections.abc import Iterator

from tests.nnhal.tflite.build import Op, ints, options
from tests.nnhal.tflite.corpus.cases import const, models, tensor

_AXES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((4,), (0,)), ((2, 3), (1,)), ((2, 3), (-2,)), ((2, 3), (0, 1)), ((1, 4, 3, 2), (1, 2)), ((2, 4, 3, 2), (2, 1)),
    ((2, 3, 4), (0, 2)), ((2, 3, 4), (-1, -1)), ((2, 1, 3, 2, 2), (3, 1)), ((2, 3, 2, 2, 2), (0, 1, 2, 3, 4)),
    ((2, 2, 3, 2), (3,)), ((1, 8, 8, 4), (1, 2)),
]  # fmt: skip
_TYPES = ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT16", "INT32", "INT64")
_ANY_ALL = ("REDUCE_ANY", "REDUCE_ALL")


@models("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")
def reductions(name: str) -> Iterator[Op]:
    """Yield all types, axes, both forms of the result, and outputs of another scale."""
    types = ("BOOL",) if name in _ANY_ALL else _TYPES
    for type_ in types:
        bounds = {"low": -3, "high": 3} if name == "REDUCE_PROD" and type_.startswith("INT") else {}
        for shape, axes in _AXES:
            for keep in (False, True):
                table = options("Reducer", keepDims=keep)
                yield Op(name, [tensor(type_, *shape, **bounds), ints(*axes)], [tensor(type_)], table)
        table = options("Reducer")
        yield Op(name, [tensor(type_, 2, 3, **bounds), const("INT32", 1)], [tensor(type_)], table)
        yield Op(
            name,
            [
                tensor(type_, **bounds),
                const(
                    "INT32",
                    [],
                ),
            ],
            [tensor(type_)],
            table,
        )
        yield Op(name, [tensor(type_, 2, 3, **bounds), const("INT32", [])], [tensor(type_)], table)
        yield Op(name, [tensor(type_, 2, 3, **bounds), tensor("INT32", 1, values=[1])], [tensor(type_)], table)
        if type_ in ("INT8", "UINT8", "INT16"):
            for scale, zero_point in ((0.01, 0), (0.2, 0), (0.06, 0)):
                for axes in ((1, 2), (3,), (0, 1)):
                    output = tensor(type_, scale=scale, zero_point=zero_point)
                    yield Op(name, [tensor(type_, 2, 4, 5, 3), ints(*axes)], [output], table)


@models("ARG_MAX", "ARG_MIN")
def arg_max(name: str) -> Iterator[Op]:
    """Yield all types, axes, types of the result, and equal values."""
    kind = "ArgMax" if name == "ARG_MAX" else "ArgMin"
    for type_ in ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL"):
        for shape, axis in (((5,), 0), ((2, 5), 1), ((2, 5), -2), ((1, 3, 4, 2), 3), ((2, 1, 3, 2, 2), 2)):
            for result in ("INT32", "INT64"):
                table = options(kind, outputType=2 if result == "INT32" else 4)
                yield Op(name, [tensor(type_, *shape), const("INT32", axis)], [tensor(result)], table)
    for axis_type in ("INT32", "INT64"):
        table = options(kind, outputType=2)
        equal = tensor("FLOAT32", 2, 4, values=[1, 3, 3, 1, 2, 2, 2, 2])
        yield Op(name, [equal, const(axis_type, [1])], [tensor("INT32")], table)
    yield Op(name, [tensor("FLOAT32", 2, 4), tensor("INT32", values=1)], [tensor("INT32")], options(kind, outputType=2))
