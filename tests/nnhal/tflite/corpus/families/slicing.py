"""Elements by position: slices, gathering, reversal, and the largest elements."""

from collections.abc import Iterator, Sequence
from itertools import product

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import const, models, tensor

TYPES = ("FLOAT32", "FLOAT16", "INT32", "INT64", "INT16", "INT8", "UINT8", "BOOL")


@models("SLICE")
def slice_(name: str) -> Iterator[Op]:
    """Yield all types, ranks, sizes of -1 and types of the positions."""
    for type_, index in product(TYPES, ("INT32", "INT64")):
        for shape, begin, size in (
            ((5,), (1,), (3,)),
            ((3, 4), (1, 0), (-1, 2)),
            ((3, 4), (0, 0), (3, 4)),
            ((1, 4, 4, 2), (0, 1, 2, 0), (1, 2, -1, 1)),
            ((2, 1, 3, 2, 2), (1, 0, 1, 0, 1), (1, 1, 2, -1, 1)),
        ):
            yield Op(
                name,
                [tensor(type_, *shape), const(index, begin), const(index, size)],
                [tensor(type_)],
                options("Slice"),
            )
    for index in ("INT32", "INT64"):
        start = tensor(index, 2, values=[1, 0])
        yield Op(name, [tensor("FLOAT32", 3, 4), start, const(index, [2, 2])], [tensor("FLOAT32")], options("Slice"))
        yield Op(
            name,
            [tensor("FLOAT32", 3, 4), start, tensor(index, 2, values=[1, -1])],
            [tensor("FLOAT32")],
            options("Slice"),
        )
    yield Op(
        name,
        [tensor("INT8", 5), const("INT32", [1]), const("INT32", [3])],
        [tensor("INT8", scale=0.3)],
        options("Slice"),
    )


_STRIDED: list[tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], dict[str, int | bool]]] = [
    ((6,), (1,), (5,), (2,), {}),
    ((6,), (-1,), (0,), (-1,), {}),
    ((6,), (0,), (0,), (-1,), {"beginMask": 1, "endMask": 1}),
    ((6,), (-2,), (9,), (1,), {}),
    ((6,), (4,), (-100,), (-2,), {}),
    ((6,), (2,), (3,), (1,), {"shrinkAxisMask": 1}),
    ((6,), (-1,), (0,), (1,), {"shrinkAxisMask": 1}),
    ((3, 4), (0, 1), (2, 4), (1, 2), {}),
    ((3, 4), (1, 0), (2, 0), (1, 1), {"shrinkAxisMask": 1, "endMask": 2}),
    ((3, 4), (0, -1), (0, 0), (1, 1), {"shrinkAxisMask": 2, "beginMask": 1, "endMask": 1}),
    ((3, 4), (1, 2), (2, 3), (1, 1), {"shrinkAxisMask": 3}),
    ((3, 4), (1,), (3,), (1,), {}),
    ((3, 4), (0, 0, 0), (0, 3, 4), (1, 1, 1), {"newAxisMask": 1}),
    ((3, 4), (0, 0, 1), (3, 0, 3), (1, 1, 1), {"newAxisMask": 2}),
    ((3, 4), (0, 1), (0, 3), (1, 1), {"ellipsisMask": 1}),
    ((2, 3, 4), (0, 1), (0, 2), (1, 1), {"ellipsisMask": 1, "shrinkAxisMask": 2}),
    ((2, 3, 4), (1, 0, 0), (2, 0, 3), (1, 1, 2), {"ellipsisMask": 2}),
    ((2, 3, 4), (0, 0, 0), (0, 0, 0), (1, 1, 1), {"ellipsisMask": 1, "newAxisMask": 4, "beginMask": 7, "endMask": 7}),
    ((3, 4), (1, 0), (2, 3), (1, 1), {"offset": True}),
    ((3, 4), (-2, 1), (1, 2), (1, 1), {"offset": True}),
    ((3, 4), (0, 0), (3, 4), (1, 1), {}),
    ((3, 4), (0, 0), (0, 4), (1, 1), {"beginMask": 1, "shrinkAxisMask": 1}),
    ((1, 4, 4, 2), (0, 0, 0, 0), (1, 4, 4, 2), (1, 2, 2, 1), {}),
    ((1, 4, 4, 2), (0, 3, 0, 0), (1, -5, 4, 1), (1, -1, 1, 1), {"shrinkAxisMask": 8}),
    ((2, 1, 3, 2, 2), (0, 0, 1, 0, 0), (2, 1, 3, 2, 1), (1, 1, 1, 1, 1), {}),
    ((2, 1, 3, 2, 2), (0, 0, 0, 0, 0), (2, 1, 3, 2, 2), (1, 1, 2, 1, 1), {"shrinkAxisMask": 16}),
]


@models("STRIDED_SLICE")
def strided_slice(name: str) -> Iterator[Op]:
    """Yield all types, masks, negative strides and positions out of range."""
    for type_, (shape, begin, end, strides, masks) in product(TYPES, _STRIDED):
        positions = [const("INT32", values) for values in (begin, end, strides)]
        yield Op(name, [tensor(type_, *shape), *positions], [tensor(type_)], options("StridedSlice", **masks))
    for index in ("INT32", "INT64"):
        positions = [tensor(index, 1, values=[1]), const(index, [3]), const(index, [1])]
        yield Op(name, [tensor("FLOAT32", 5), *positions], [tensor("FLOAT32")], options("StridedSlice"))
        positions = [const(index, [1]), const(index, [3]), const(index, [1])]
        yield Op(name, [tensor("FLOAT32", 5), *positions], [tensor("FLOAT32")], options("StridedSlice"))


@models("GATHER")
def gather(name: str) -> Iterator[Op]:
    """Yield all types, axes, ranks of the indices, and batch dimensions."""
    for type_, index in product(TYPES, ("INT32", "INT64", "INT16")):
        for shape, indices, axis, batches in (
            ((5,), [3, 0, 3], 0, 0),
            ((5,), 2, 0, 0),
            ((3, 4), [2, 0], -1, 0),
            ((3, 4), 1, 1, 0),
            ((3, 4), [[1], [2]], 0, 0),
            ((1, 4, 3, 2), [1, 1], 2, 0),
            ((2, 3), [[2, 0], [1, 1]], 1, 1),
            ((2, 3), [2, 1], 1, 1),
            ((2, 3, 4), [[2, 0, 1], [1, 1, 2]], 1, 1),
            ((2, 3, 4), [[[2, 0], [1, 1], [3, 0]], [[1, 1], [2, 2], [0, 3]]], 2, 2),
            ((2, 3, 4), [[0, 1], [2, 3]], 2, 1),
            ((1, 2, 2, 3, 2), [1, 0], 1, 0),
        ):
            table = options("Gather", axis=axis, batchDims=batches)
            data = tensor(type_, *shape)
            yield Op(name, [data, const(index, indices)], [tensor(type_)], table)
            variable = tensor(index, *const(index, indices).shape, values=indices, scale=0)
            yield Op(name, [data, variable], [tensor(type_)], table)
    for outside in (-1, 5):
        yield Op(name, [tensor("FLOAT32", 5), const("INT32", [outside])], [tensor("FLOAT32")], options("Gather"))


@models("GATHER_ND")
def gather_nd(name: str) -> Iterator[Op]:
    """Yield all types, numbers of coordinates and ranks of the indices."""
    for type_, index in product(TYPES, ("INT32", "INT64")):
        for shape, indices in (
            ((5,), [[3], [0]]),
            ((3, 4), [[2], [0]]),
            ((3, 4), [[2, 1], [0, 3], [1, 1]]),
            ((3, 4), [2, 1]),
            ((3, 4), [2]),
            ((2, 3, 4), [[[1, 2], [0, 0]]]),
            ((2, 3, 4), [[1, 2, 3], [0, 0, 0]]),
        ):
            data = tensor(type_, *shape)
            yield Op(name, [data, const(index, indices)], [tensor(type_)], options("GatherNd"))
            variable = tensor(index, *const(index, indices).shape, values=indices)
            yield Op(name, [data, variable], [tensor(type_)], options("GatherNd"))
    yield Op(name, [tensor("FLOAT32", 3), const("INT32", [[3]])], [tensor("FLOAT32")], options("GatherNd"))


@models("REVERSE_V2")
def reverse(name: str) -> Iterator[Op]:
    """Yield all types, and one and several axes."""
    for type_ in TYPES:
        for shape, axes in (
            ((5,), (0,)),
            ((2, 3), (-1,)),
            ((2, 3), (0, 1)),
            ((2, 3, 4), (1, 2)),
            ((2, 3, 4), (2, 1)),
            ((2, 3, 4), (0, 2)),
            ((1, 2, 3, 2), (1,)),
            ((2, 1, 3, 2, 2), (2, 3)),
        ):
            yield Op(name, [tensor(type_, *shape), const("INT32", axes)], [tensor(type_)], options("ReverseV2"))
    yield Op(name, [tensor("FLOAT32", 4), tensor("INT32", 1, values=[0])], [tensor("FLOAT32")], options("ReverseV2"))


@models("REVERSE_SEQUENCE")
def reverse_sequence(name: str) -> Iterator[Op]:
    """Yield all types and dimensions."""
    for type_, lengths in product(TYPES, ("INT32", "INT64")):
        for sequence, batch in ((1, 0), (0, 1), (2, 0)):
            shape = (3, 3, 3)
            table = options("ReverseSequence", seqDim=sequence, batchDim=batch)
            yield Op(name, [tensor(type_, *shape), const(lengths, [1, 2, 3])], [tensor(type_)], table)


@models("TOPK_V2")
def topk(name: str) -> Iterator[Op]:
    """Yield all types, equal values, and several counts."""
    for type_ in TYPES[:-1]:
        for shape, k in (((6,), 3), ((2, 5), 5), ((2, 5), 1), ((1, 2, 3, 6), 2)):
            outputs = [tensor(type_), tensor("INT32")]
            yield Op(name, [tensor(type_, *shape), const("INT32", k)], outputs, options("TopKV2"))
        equal = tensor(type_, 2, 6, values=[3, 1, 3, 2, 2, 3, 5, 5, 5, 5, 5, 5])
        yield Op(name, [equal, const("INT32", 4)], [tensor(type_), tensor("INT32")], options("TopKV2"))
        yield Op(name, [equal, const("INT32", 6)], [tensor(type_), tensor("INT32")], options("TopKV2"))
        yield Op(
            name, [equal, const("INT16", 2, scale=0)], [tensor(type_), tensor("INT16", scale=0)], options("TopKV2")
        )
    yield Op(
        name, [tensor("FLOAT32", 5), tensor("INT32", values=2)], [tensor("FLOAT32"), tensor("INT32")], options("TopKV2")
    )
