"""Shape and order of dimensions."""

from collections.abc import Iterator
from itertools import product

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import const, models, tensor

TYPES = ("FLOAT32", "FLOAT16", "INT32", "INT64", "INT16", "INT8", "UINT8", "BOOL")


@models("RESHAPE")
def reshape(name: str) -> Iterator[Op]:
    """Yield all types and ranks, with the shape as a constant, an option and an input."""
    for type_ in TYPES:
        for shape, target in (
            ((6,), (2, 3)),
            ((2, 3), (-1,)),
            ((1, 2, 3, 2), (3, -1)),
            ((1, 1), ()),
            ((), (1, 1)),
            ((2, 1, 3, 2, 2), (6, 4)),
            ((6, 4), (2, 1, 3, 2, 2)),
        ):
            for kind in ("INT32", "INT64"):
                yield Op(name, [tensor(type_, *shape), const(kind, target)], [tensor(type_)], options("Reshape"))
            yield Op(name, [tensor(type_, *shape)], [tensor(type_)], options("Reshape", newShape=list(target)))
    yield Op(name, [tensor("FLOAT32", 6), tensor("INT32", 2, values=[3, 2])], [tensor("FLOAT32")], options("Reshape"))
    yield Op(name, [tensor("INT8", 6), const("INT32", [2, 3])], [tensor("INT8", scale=0.3)], options("Reshape"))


@models("SQUEEZE")
def squeeze(name: str) -> Iterator[Op]:
    """Yield all types and axes."""
    for type_ in TYPES:
        for shape, axes in (
            ((1, 2, 1), ()),
            ((1, 2, 1), (0,)),
            ((1, 2, 1), (-1,)),
            ((1, 1, 1), ()),
            ((2, 3), ()),
            ((1, 2, 1, 3), (0, 2)),
            ((1, 2, 1, 2, 1), (2,)),
            ((), ()),
        ):
            yield Op(name, [tensor(type_, *shape)], [tensor(type_)], options("Squeeze", squeezeDims=list(axes)))


@models("EXPAND_DIMS")
def expand_dims(name: str) -> Iterator[Op]:
    """Yield all types, axes and ranks."""
    for type_, axis_type in product(TYPES, ("INT32", "INT64")):
        for shape, axis in (
            ((), 0),
            ((), -1),
            ((3,), 0),
            ((3,), -1),
            ((2, 3), 1),
            ((1, 2, 3, 2), -2),
            ((2, 1, 3, 2, 2), 5),
        ):
            yield Op(name, [tensor(type_, *shape), const(axis_type, axis)], [tensor(type_)], options("ExpandDims"))
    yield Op(name, [tensor("FLOAT32", 3), tensor("INT32", values=1)], [tensor("FLOAT32")], options("ExpandDims"))


@models("TRANSPOSE")
def transpose(name: str) -> Iterator[Op]:
    """Yield all types, ranks and orders."""
    for type_ in TYPES:
        for shape, order in (
            ((5,), (0,)),
            ((2, 3), (1, 0)),
            ((2, 3), (0, 1)),
            ((2, 3, 4), (2, 0, 1)),
            ((1, 4, 3, 2), (0, 3, 1, 2)),
            ((1, 4, 1, 2), (0, 2, 1, 3)),
            ((2, 3, 4), (-1, 0, 1)),
            ((2, 1, 3, 2, 2), (0, 2, 1, 4, 3)),
            ((2, 1, 3, 1, 2, 2), (5, 4, 3, 2, 1, 0)),
        ):
            yield Op(name, [tensor(type_, *shape), const("INT32", order)], [tensor(type_)], options("Transpose"))
    yield Op(name, [tensor("FLOAT32", 2, 3), const("INT64", [1, 0])], [tensor("FLOAT32")], options("Transpose"))
    yield Op(
        name, [tensor("FLOAT32", 2, 3), tensor("INT32", 2, values=[1, 0])], [tensor("FLOAT32")], options("Transpose")
    )


@models("SHAPE")
def shape_of(name: str) -> Iterator[Op]:
    """Yield both types of the result."""
    for type_, (result, code) in product(TYPES, (("INT32", 2), ("INT64", 4))):
        for shape in ((), (3,), (1, 2, 3)):
            yield Op(name, [tensor(type_, *shape)], [tensor(result)], options("Shape", outType=code))


@models("RANK")
def rank(name: str) -> Iterator[Op]:
    """Yield several ranks."""
    for shape in ((), (3,), (1, 2, 3)):
        yield Op(name, [tensor("FLOAT32", *shape)], [tensor("INT32")], options("Rank"))
