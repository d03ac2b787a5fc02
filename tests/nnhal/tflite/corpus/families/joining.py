"""Joining, splitting and repetition."""

from collections.abc import Iterator
from itertools import product

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import const, models, tensor, with_constants

TYPES = ("FLOAT32", "FLOAT16", "INT32", "INT64", "INT16", "INT8", "UINT8", "BOOL")


@models("CONCATENATION")
def concatenation(name: str) -> Iterator[Op]:
    """Yield all types, axes, numbers of inputs, scales and constants."""
    for type_ in TYPES:
        for shapes, axis in (
            ([(3,), (4,)], 0),
            ([(2, 3), (2, 3)], -1),
            ([(2, 3), (1, 3), (4, 3)], 0),
            ([(1, 2, 3, 2), (1, 2, 3, 2)], 3),
            ([(1, 2, 2, 3), (1, 5, 2, 3)], 1),
            ([(2, 1, 3, 2, 2), (2, 1, 3, 2, 2)], -2),
            ([(2, 3)], 1),
        ):
            op = Op(
                name, [tensor(type_, *shape) for shape in shapes], [tensor(type_)], options("Concatenation", axis=axis)
            )
            yield op
            if len(shapes) > 1:
                yield with_constants(op, 1)
    for type_ in ("INT8", "UINT8", "INT16"):
        for first, second, result in ((0.05, 0.1, 0.1), (0.3, 0.3, 0.1), (0.01, 0.01, 0.02)):
            inputs = [tensor(type_, 100, scale=first), tensor(type_, 100, scale=second, zero_point=0)]
            yield Op(name, inputs, [tensor(type_, scale=result, zero_point=0)], options("Concatenation", axis=0))
    for activation in (1, 3):
        table = options("Concatenation", axis=0, fusedActivationFunction=activation)
        yield Op(name, [tensor("FLOAT32", 4), tensor("FLOAT32", 3)], [tensor("FLOAT32")], table)


@models("PACK")
def pack(name: str) -> Iterator[Op]:
    """Yield all types, ranks, axes and constants."""
    for type_ in TYPES:
        for shape, axis, count in (
            ((), 0, 3),
            ((), -1, 2),
            ((4,), 0, 2),
            ((4,), -1, 3),
            ((2, 3), 1, 2),
            ((1, 2, 3), 3, 2),
            ((1, 2, 3, 2), 0, 2),
            ((4,), 0, 1),
        ):
            op = Op(
                name,
                [tensor(type_, *shape) for _ in range(count)],
                [tensor(type_)],
                options("Pack", axis=axis, valuesCount=count),
            )
            yield op
            if count > 1:
                yield with_constants(op, 1)
    for type_ in ("INT8", "UINT8"):
        inputs = [tensor(type_, 4, scale=0.05), tensor(type_, 4, scale=0.1)]
        yield Op(name, inputs, [tensor(type_, scale=0.1)], options("Pack", axis=0, valuesCount=2))


@models("UNPACK")
def unpack(name: str) -> Iterator[Op]:
    """Yield all types, ranks and axes."""
    for type_ in TYPES:
        for shape, axis in (
            ((3,), 0),
            ((9,), -1),
            ((2, 3), 0),
            ((2, 3), -1),
            ((1, 4), 0),
            ((2, 7), 1),
            ((2, 1, 3, 2), 1),
            ((1, 2, 2, 3), 3),
            ((2, 1, 3, 2, 2), 0),
        ):
            outputs = [tensor(type_) for _ in range(shape[axis])]
            yield Op(name, [tensor(type_, *shape)], outputs, options("Unpack", axis=axis, num=shape[axis]))
    yield Op(
        name, [tensor("INT8", 2, 4)], [tensor("INT8"), tensor("INT8", scale=0.2)], options("Unpack", axis=0, num=2)
    )


@models("SPLIT")
def split(name: str) -> Iterator[Op]:
    """Yield all types, axes and numbers of parts."""
    for type_ in TYPES:
        for shape, axis, count in (
            ((6,), 0, 3),
            ((2, 4), -1, 2),
            ((2, 4), 0, 1),
            ((1, 2, 3, 4), 3, 4),
            ((2, 1, 4, 2, 2), 2, 2),
        ):
            outputs = [tensor(type_) for _ in range(count)]
            yield Op(name, [const("INT32", axis), tensor(type_, *shape)], outputs, options("Split", numSplits=count))
    inputs = [tensor("INT32", values=0), tensor("FLOAT32", 4, 2)]
    yield Op(name, inputs, [tensor("FLOAT32"), tensor("FLOAT32")], options("Split", numSplits=2))
    outputs = [tensor("INT8"), tensor("INT8", scale=0.2)]
    yield Op(name, [const("INT32", [0]), tensor("INT8", 4, 2)], outputs, options("Split", numSplits=2))


@models("SPLIT_V")
def split_v(name: str) -> Iterator[Op]:
    """Yield all types, axes and lengths of parts."""
    for type_, sizes_type in product(TYPES, ("INT32", "INT64")):
        for shape, axis, sizes in (
            ((6,), 0, (1, 5)),
            ((2, 6), -1, (3, -1)),
            ((2, 6), 1, (2, 2, 2)),
            ((1, 4, 3, 2), 1, (1, 1, -1)),
            ((2, 1, 4, 2, 2), 2, (1, 3)),
            ((8,), 0, (1, 1, 1, 1, 1, 3)),
        ):
            inputs = [tensor(type_, *shape), const(sizes_type, sizes), const("INT32", axis)]
            yield Op(name, inputs, [tensor(type_) for _ in sizes], options("SplitV", numSplits=len(sizes)))
    inputs = [tensor("FLOAT32", 4), tensor("INT32", 2, values=[1, 3]), const("INT32", 0)]
    yield Op(name, inputs, [tensor("FLOAT32", 1), tensor("FLOAT32", 3)], options("SplitV", numSplits=2))


@models("TILE")
def tile(name: str) -> Iterator[Op]:
    """Yield all types, ranks and multiples."""
    for type_, multiples_type in product(TYPES, ("INT32", "INT64")):
        for shape, multiples in (
            ((3,), (2,)),
            ((2, 3), (1, 3)),
            ((1, 2, 2, 3), (2, 1, 3, 1)),
            ((2, 3), (1, 1)),
            ((1, 2, 1, 2, 2), (2, 1, 3, 1, 1)),
        ):
            yield Op(name, [tensor(type_, *shape), const(multiples_type, multiples)], [tensor(type_)])
    yield Op(name, [tensor("FLOAT32", 2), tensor("INT32", 1, values=[3])], [tensor("FLOAT32")])


@models("BROADCAST_TO")
def broadcast_to(name: str) -> Iterator[Op]:
    """Yield all types, ranks and shapes."""
    table = options("BroadcastTo")
    for type_, shape_type in product(TYPES, ("INT32", "INT64")):
        for shape, target in (
            ((3,), (2, 3)),
            ((), (4,)),
            ((), (2, 2)),
            ((2, 1), (2, 5)),
            ((1, 3, 1), (2, 2, 3, 4)),
            ((2, 3), (2, 3)),
            ((2, 1), (2, 1, 3, 2, 4)),
        ):
            yield Op(name, [tensor(type_, *shape), const(shape_type, target)], [tensor(type_)], table, version=3)
    inputs = [tensor("FLOAT32", 2), tensor("INT32", 2, values=[3, 2])]
    yield Op(name, inputs, [tensor("FLOAT32")], table, version=3)


@models("BROADCAST_ARGS")
def broadcast_args(name: str) -> Iterator[Op]:
    """Yield both types of shapes."""
    for type_ in ("INT32", "INT64"):
        yield Op(name, [tensor(type_, 2, values=[1, 3]), tensor(type_, 3, values=[4, 2, 1])], [tensor(type_)])
        yield Op(name, [tensor(type_, 1, values=[5]), const(type_, [2, 1])], [tensor(type_)])
