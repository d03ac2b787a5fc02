"""Selection by a condition, and positions as vectors."""

from collections.abc import Iterator
from itertools import product

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import const, models, tensor, with_constants

TYPES = ("FLOAT32", "FLOAT16", "INT32", "INT64", "INT16", "INT8", "UINT8", "BOOL")
_SAME = [((2, 3), (2, 3), (2, 3)), ((), (), ()), ((4,), (4,), (4,)), ((2, 1, 3, 2, 2),) * 3]
_ROWS = [((2,), (2, 3), (2, 3)), ((2,), (2, 3, 2), (2, 3, 2)), ((), (2, 3), (2, 3)), ((1,), (1, 3), (1, 3))]
_BROADCAST = [
    ((2, 1), (2, 3), (2, 3)),
    ((3,), (2, 3), (1, 3)),
    ((2, 3), (), (2, 3)),
    ((2, 3), (2, 3), (1,)),
    ((1, 4, 1, 1), (2, 1, 3, 1), (1, 1, 1, 5)),
    ((), (3,), (3,)),
]


@models("SELECT", "SELECT_V2")
def select(name: str) -> Iterator[Op]:
    """Yield all types, broadcasting, conditions for rows, constants, and other scales."""
    shapes = [*_SAME, *(_ROWS if name == "SELECT" else _BROADCAST)]
    for type_, (condition, first, second) in product(TYPES, shapes):
        op = Op(name, [tensor("BOOL", *condition), tensor(type_, *first), tensor(type_, *second)], [tensor(type_)])
        yield op
        yield with_constants(op, 2)
        yield with_constants(op, 0)
    for type_ in ("INT8", "UINT8"):
        inputs = [tensor("BOOL", 40), tensor(type_, 40, scale=0.05), tensor(type_, 40, scale=0.1)]
        yield Op(name, inputs, [tensor(type_, scale=0.1)])


@models("ONE_HOT")
def one_hot(name: str) -> Iterator[Op]:
    """Yield all types, axes, ranks, and indices out of range."""
    for type_, index in product(TYPES, ("INT32", "INT64", "UINT8", "INT8")):
        for shape, axis in (((3,), -1), ((3,), 0), ((2, 2), 1), ((2, 2), -1), ((), -1), ((1, 2, 3), 0)):
            low, high = (0 if index == "UINT8" else -1), 4
            indices = tensor(index, *shape, low=low, high=high, scale=0)
            values = [const(type_, 1, scale=0), const(type_, 0, scale=0)]
            yield Op(
                name, [indices, const("INT32", 4), *values], [tensor(type_, scale=0)], options("OneHot", axis=axis)
            )
    indices = tensor("INT32", 3, low=0, high=3)
    off_on = [const("FLOAT32", -2.5), const("FLOAT32", 0.5)]
    yield Op(name, [indices, const("INT32", 4), *off_on], [tensor("FLOAT32")], options("OneHot", axis=-1))
    yield Op(
        name,
        [indices, const("INT32", 4), const("BOOL", False), const("BOOL", True)],
        [tensor("BOOL")],
        options("OneHot", axis=-1),
    )
    variable = [tensor("FLOAT32"), const("FLOAT32", 0)]
    yield Op(name, [indices, const("INT32", 4), *variable], [tensor("FLOAT32")], options("OneHot", axis=-1))
    yield Op(name, [indices, tensor("INT32", values=4), *off_on], [tensor("FLOAT32")], options("OneHot", axis=-1))


@models("WHERE")
def where(name: str) -> Iterator[Op]:
    """Yield all types of conditions."""
    for type_ in ("BOOL", "FLOAT32", "INT32", "INT8"):
        yield Op(name, [tensor(type_, 2, 3)], [tensor("INT64")])
