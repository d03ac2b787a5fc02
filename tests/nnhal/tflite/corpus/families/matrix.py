"""Matrix products and lookups."""

from collections.abc import Iterator

from tests.nnhal.tflite.build import Op, options, schema
from tests.nnhal.tflite.corpus.cases import const, constant, models, tensor, with_constants
from tests.nnhal.tflite.corpus.families.convolution import bias, weights

_SHAPES: list[tuple[tuple[int, ...], bool]] = [
    ((2, 6), False), ((2, 6), True), ((6,), False), ((6,), True), ((2, 3, 6), False), ((2, 3, 6), True),
    ((2, 2, 3, 3), False), ((1, 2, 2, 6), True), ((2, 12), False), ((1, 2, 1, 2, 6), True), ((1, 6), False),
]  # fmt: skip


@models("FULLY_CONNECTED")
def fully_connected(name: str) -> Iterator[Op]:
    """Yield all types, ranks, biases and activations, and float inputs with 8-bit weights."""
    for type_ in ("FLOAT32", "INT8", "UINT8", "INT16", "FLOAT16"):
        output = tensor(type_, scale=0.5 if type_ != "INT16" else 0.005)
        if type_.startswith("FLOAT"):
            output = tensor(type_)
        filter_ = weights(type_, (4, 6))
        terms = bias(type_, filter_, 4, 0.001 if type_ == "INT16" else 0.05)
        for shape, keep in _SHAPES:
            for more in ([terms], [], [None]):
                table = options("FullyConnected", keepNumDims=keep)
                yield Op(name, [tensor(type_, *shape), filter_, *more], [output], table)
        for activation in (1, 2, 3):
            table = options("FullyConnected", fusedActivationFunction=activation)
            yield Op(name, [tensor(type_, 3, 6), filter_, terms], [output], table)
        if type_ == "INT8":
            channels = weights(type_, (4, 6), 0)
            table = options("FullyConnected")
            yield Op(name, [tensor(type_, 3, 6), channels, bias(type_, channels, 4)], [output], table)
            wide = tensor("INT16", scale=0.01)
            yield Op(name, [tensor(type_, 3, 6), filter_, terms], [wide], table)
    table = options("FullyConnected")
    dynamic = [tensor("FLOAT32", 3, 6), tensor("FLOAT32", 4, 6), tensor("FLOAT32", 4)]
    yield Op(name, dynamic, [tensor("FLOAT32")], table)
    yield Op(name, [tensor("INT8", 3, 6), tensor("INT8", 4, 6), None], [tensor("INT8", scale=0.5)], table)
    for asymmetric in (False, True):
        table = options("FullyConnected", asymmetricQuantizeInputs=asymmetric)
        for hybrid in (weights("INT8", (4, 6)), weights("INT8", (4, 6), 0)):
            yield Op(
                name, [tensor("FLOAT32", 3, 6), hybrid, constant(tensor("FLOAT32", 4))], [tensor("FLOAT32")], table
            )


_PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...], bool, bool]] = [
    ((2, 3), (3, 4), False, False), ((3, 2), (3, 4), True, False), ((2, 3), (4, 3), False, True),
    ((3, 2), (4, 3), True, True), ((5, 2, 3), (5, 3, 4), False, False), ((5, 2, 3), (1, 3, 4), False, False),
    ((1, 2, 3), (5, 3, 4), False, False), ((5, 2, 3), (3, 4), False, False), ((2, 3), (5, 3, 4), False, False),
    ((2, 1, 2, 3), (1, 5, 3, 4), False, False), ((2, 2, 2, 3), (2, 2, 4, 3), False, True),
    ((2, 1, 1, 2, 3), (1, 5, 2, 3, 4), False, False), ((2, 2, 3, 2), (2, 3, 4), True, False),
]  # fmt: skip


@models("BATCH_MATMUL")
def batch_matmul(name: str) -> Iterator[Op]:
    """Yield all types, transpositions and broadcast batches."""
    for type_ in ("FLOAT32", "INT8", "INT16", "INT32", "FLOAT16"):
        for x, y, adj_x, adj_y in _PRODUCTS:
            table = options("BatchMatMul", adjX=adj_x, adjY=adj_y)
            output = tensor(type_, scale=0.1 if type_ == "INT8" else None)
            op = Op(name, [tensor(type_, *x), tensor(type_, *y)], [output], table)
            yield op
            if type_ in ("FLOAT32", "INT8"):
                yield with_constants(op, 1)
    table = options("BatchMatMul", adjY=True)
    hybrid = constant(tensor("INT8", 4, 3, scale=0.02, zero_point=0))
    yield Op(name, [tensor("FLOAT32", 2, 3), hybrid], [tensor("FLOAT32")], table)
    yield Op(
        name, [tensor("INT8", 2, 3), tensor("INT8", 3, 4)], [tensor("INT32", scale=0.0025)], options("BatchMatMul")
    )


@models("EMBEDDING_LOOKUP")
def embedding_lookup(name: str) -> Iterator[Op]:
    """Yield all types of the table, and float results of 8-bit tables."""
    ids = tensor("INT32", 4, low=0, high=5)
    for type_ in ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL"):
        for shape in ((6, 3), (6, 2, 2), (6, 1, 2, 2), (6,)):
            op = Op(name, [ids, tensor(type_, *shape)], [tensor(type_)])
            yield op
            yield with_constants(op, 1)
    for channels in (None, 0):
        yield Op(name, [ids, weights("INT8", (6, 3), channels)], [tensor("FLOAT32")])


@models("HASHTABLE_LOOKUP")
def hashtable_lookup(name: str) -> Iterator[Op]:
    """Yield the types that the kernel takes, with keys that are present and absent."""
    lookups = tensor("INT32", 4, values=[3, 7, 4, -1])
    keys = constant(tensor("INT32", 3, values=[-1, 3, 7]))
    for type_ in ("FLOAT32", "INT32", "INT8", "UINT8"):
        for shape in ((3, 2), (3, 2, 2)):
            op = Op(name, [lookups, keys, tensor(type_, *shape)], [tensor(type_), tensor("UINT8", scale=0)])
            yield op
            yield with_constants(op, 2)


@models("LSH_PROJECTION")
def lsh_projection(name: str) -> Iterator[Op]:
    """Yield both kinds, with weights and without."""
    kinds = schema.LSHProjectionType
    for kind in (kinds.SPARSE, kinds.DENSE):
        table = options("LSHProjection", type=kind)
        for hash_shape in ((3, 2), (4, 1), (1, 8)):
            hashes = constant(tensor("FLOAT32", *hash_shape, low=-3, high=3))
            for type_, shape in (
                ("INT32", (5,)),
                ("INT32", (3, 2)),
                ("FLOAT32", (4, 3)),
                ("INT64", (5,)),
                ("UINT8", (6, 2)),
            ):
                data = tensor(type_, *shape, scale=0 if type_ == "UINT8" else None)
                yield Op(name, [hashes, data], [tensor("INT32")], table)
                yield Op(name, [hashes, data, tensor("FLOAT32", shape[0], low=0.1, high=2)], [tensor("INT32")], table)


@models("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(name: str) -> Iterator[Op]:
    """Yield all combiners with one and two dimensions of lookups."""
    combiners = schema.CombinerType
    for combiner in (combiners.SUM, combiners.MEAN, combiners.SQRTN):
        table = options("EmbeddingLookupSparse", combiner=combiner)
        ids, importance = const("INT32", [1, 3, 0]), constant(tensor("FLOAT32", 3, low=0.1, high=2))
        for indices, dense in (([[0, 0], [2, 0], [2, 1]], [3, 2]), ([[0, 0, 0], [1, 0, 0], [1, 1, 1]], [2, 2, 2])):
            rows = tensor("FLOAT32", 5, 4)
            inputs = [ids, const("INT32", indices), const("INT32", dense), importance, rows]
            yield Op(name, inputs, [tensor("FLOAT32")], table)
