"""Rearrangement, padding and filling."""

from collections.abc import Iterator
from itertools import product

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import const, models, tensor

TYPES = ("FLOAT32", "FLOAT16", "INT32", "INT64", "INT16", "INT8", "UINT8", "BOOL")
_PADDINGS: list[tuple[tuple[int, ...], list[list[int]]]] = [
    ((5,), [[1, 2]]),
    ((2, 3), [[0, 0], [1, 1]]),
    ((1, 4, 4, 2), [[0, 0], [1, 2], [2, 1], [0, 0]]),
    ((1, 4, 3, 2), [[0, 0], [0, 0], [0, 0], [1, 1]]),
    ((2, 3), [[0, 0], [0, 0]]),
    ((2, 2, 3, 2, 2), [[0, 0], [1, 0], [0, 0], [1, 1], [0, 0]]),
]


@models("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def blocks(name: str) -> Iterator[Op]:
    """Yield all types and two sides."""
    kind = "SpaceToDepth" if name == "SPACE_TO_DEPTH" else "DepthToSpace"
    for type_, side in product(TYPES, (1, 2, 3)):
        shape = (2, 2 * side, side, 3) if name == "SPACE_TO_DEPTH" else (2, 2, 1, 3 * side * side)
        yield Op(name, [tensor(type_, *shape)], [tensor(type_)], options(kind, blockSize=side))


@models("BATCH_TO_SPACE_ND")
def batch_to_space(name: str) -> Iterator[Op]:
    """Yield all types, ranks 3 and 4, and crops."""
    for type_, index in product(TYPES, ("INT32", "INT64")):
        for shape, block, crops in (
            ((4, 2, 2, 3), (2, 2), [[0, 0], [0, 0]]),
            ((4, 2, 2, 3), (2, 2), [[1, 0], [0, 2]]),
            ((12, 2, 1, 1), (2, 3), [[1, 1], [0, 1]]),
            ((4, 2, 3), (2,), [[0, 0]]),
            ((4, 2, 3), (2,), [[1, 1]]),
        ):
            yield Op(name, [tensor(type_, *shape), const(index, block), const(index, crops)], [tensor(type_)])
    variable = [tensor("INT32", 2, values=[2, 2]), tensor("INT32", 2, 2, values=[[0, 0], [0, 0]])]
    yield Op(name, [tensor("FLOAT32", 4, 1, 1, 1), *variable], [tensor("FLOAT32")])


@models("SPACE_TO_BATCH_ND")
def space_to_batch(name: str) -> Iterator[Op]:
    """Yield all types, ranks 3 and 4, and paddings."""
    for type_, index in product(TYPES, ("INT32", "INT64")):
        for shape, block, paddings in (
            ((1, 4, 4, 3), (2, 2), [[0, 0], [0, 0]]),
            ((2, 3, 4, 1), (2, 2), [[1, 0], [0, 2]]),
            ((1, 2, 1, 1), (2, 3), [[1, 1], [0, 2]]),
            ((2, 4, 3), (2,), [[0, 0]]),
            ((2, 3, 3), (2,), [[2, 1]]),
        ):
            yield Op(name, [tensor(type_, *shape), const(index, block), const(index, paddings)], [tensor(type_)])


@models("PAD", "PADV2", "MIRROR_PAD")
def pad(name: str) -> Iterator[Op]:
    """Yield all types, ranks, values, modes, negative paddings, and variable ones."""
    for type_, index, (shape, paddings) in product(TYPES, ("INT32", "INT64"), _PADDINGS):
        inputs = [tensor(type_, *shape), const(index, paddings)]
        if name == "PADV2":
            inputs.append(const(type_, 1))
        tables = [options("Pad")] if name == "PAD" else [options("PadV2")]
        if name == "MIRROR_PAD":
            tables = [options("MirrorPad", mode=mode) for mode in (0, 1)]
        yield from (Op(name, inputs, [tensor(type_)], table) for table in tables)
    table = options({"PAD": "Pad", "PADV2": "PadV2", "MIRROR_PAD": "MirrorPad"}[name])
    value = [const("FLOAT32", 2.5)] if name == "PADV2" else []
    yield Op(name, [tensor("FLOAT32", 5), const("INT32", [[-1, 1]]), *value], [tensor("FLOAT32")], table)
    yield Op(name, [tensor("FLOAT32", 5), tensor("INT32", 1, 2, values=[1, 2]), *value], [tensor("FLOAT32")], table)
    if name == "PADV2":
        inputs = [tensor("FLOAT32", 5), const("INT32", [[1, 1]]), tensor("FLOAT32")]
        yield Op(name, inputs, [tensor("FLOAT32")], table)
        for type_ in ("INT8", "UINT8"):
            inputs = [tensor(type_, 5), const("INT32", [[1, 1]]), const(type_, 9, scale=0.2)]
            yield Op(name, inputs, [tensor(type_)], table)


@models("FILL")
def fill(name: str) -> Iterator[Op]:
    """Yield all types, shapes, and variable arguments."""
    for type_, index in product(TYPES, ("INT32", "INT64")):
        for shape in ((3,), (2, 3), (1, 2, 2, 2)):
            dims = tensor(index, len(shape), values=shape)
            yield Op(name, [dims, const(type_, 1)], [tensor(type_)], options("Fill"))
            yield Op(name, [const(index, shape), tensor(type_)], [tensor(type_)], options("Fill"))
    yield Op(name, [const("INT32", []), tensor("FLOAT32")], [tensor("FLOAT32")], options("Fill"))


@models("ZEROS_LIKE")
def zeros_like(name: str) -> Iterator[Op]:
    """Yield all types and ranks."""
    for type_, shape in product(TYPES, ((), (3,), (2, 3), (2, 1, 3, 2, 2))):
        yield Op(name, [tensor(type_, *shape)], [tensor(type_)], options("ZerosLike"))
