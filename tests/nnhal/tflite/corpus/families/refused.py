"""Operators without NNAPI counterpart, which run in regions of the LiteRT extension."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.nnhal.tflite.build import Op, options
from tests.nnhal.tflite.corpus.cases import QUANTIZED, const, models, tensor

INTEGERS = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64")


@models("CUMSUM")
def cumsum(name: str) -> Iterator[Op]:
    """Yield all types, axes and directions."""
    for type_, axis in product(("FLOAT32", "INT32", "INT64"), (0, 1, -1)):
        for exclusive, reverse in product((False, True), repeat=2):
            table = options("Cumsum", exclusive=exclusive, reverse=reverse)
            yield Op(name, [tensor(type_, 2, 3, 4), const("INT32", axis)], [tensor(type_)], table)


@models("RANGE")
def range_(name: str) -> Iterator[Op]:
    """Yield all types, with constant and with variable limits."""
    table = options("Range")
    for type_ in ("FLOAT32", "INT32", "INT64"):
        for start, limit, delta in ((0, 5, 1), (7, 1, -2), (3, 4, 1)):
            yield Op(name, [const(type_, start), const(type_, limit), const(type_, delta)], [tensor(type_)], table)
            yield Op(
                name, [tensor(type_, values=start), const(type_, limit), const(type_, delta)], [tensor(type_)], table
            )


@models("ATAN2")
def atan2(name: str) -> Iterator[Op]:
    """Yield both types."""
    for type_ in ("FLOAT32", "FLOAT64"):
        yield Op(name, [tensor(type_, 2, 3), tensor(type_, 2, 3)], [tensor(type_)], options("ATan2"))


@models("BITCAST")
def bitcast(name: str) -> Iterator[Op]:
    """Yield results with elements of the same, a smaller and a larger size."""
    for source, shape, target in (
        ("FLOAT32", (2, 3), "INT32"),
        ("INT32", (3,), "FLOAT32"),
        ("INT32", (3,), "UINT8"),
        ("INT16", (3, 2), "INT32"),
    ):
        yield Op(name, [tensor(source, *shape, scale=0)], [tensor(target, scale=0)], options("Bitcast"))


@models("BITWISE_XOR", "RIGHT_SHIFT")
def bits(name: str) -> Iterator[Op]:
    """Yield all types of integers, and broadcasting."""
    high, table = 6 if name == "RIGHT_SHIFT" else 100, options(name.title().replace("_", ""))
    for type_, shape in product(INTEGERS, ((2, 3), (3,), ())):
        second = tensor(type_, *shape, scale=0, low=0, high=high)
        yield Op(name, [tensor(type_, 2, 3, scale=0), second], [tensor(type_, scale=0)], table)
    if name == "BITWISE_XOR":
        yield Op(name, [tensor("BOOL", 2, 3), tensor("BOOL", 3)], [tensor("BOOL")], table)


@models("BUCKETIZE")
def bucketize(name: str) -> Iterator[Op]:
    """Yield all types."""
    for type_ in ("FLOAT32", "INT32", "INT64"):
        yield Op(name, [tensor(type_, 2, 3)], [tensor("INT32")], options("Bucketize", boundaries=[-1.0, 0.5, 10.0]))


@models("COMPLEX_ABS", "REAL", "IMAG")
def complex_parts(name: str) -> Iterator[Op]:
    """Yield both types."""
    for source, target in (("COMPLEX64", "FLOAT32"), ("COMPLEX128", "FLOAT64")):
        yield Op(name, [tensor(source, 2, 3)], [tensor(target)])


@models("CONV_3D")
def conv_3d(name: str) -> Iterator[Op]:
    """Yield both paddings."""
    for padding in (0, 1):
        table = options(
            "Conv3D",
            padding=padding,
            strideD=1,
            strideW=2,
            strideH=1,
            dilationDFactor=1,
            dilationWFactor=1,
            dilationHFactor=1,
        )
        filter_ = tensor("FLOAT32", 2, 2, 2, 3, 4)
        yield Op(name, [tensor("FLOAT32", 1, 4, 4, 4, 3), filter_, tensor("FLOAT32", 4)], [tensor("FLOAT32")], table)


@models("CONV_3D_TRANSPOSE")
def conv_3d_transpose(name: str) -> Iterator[Op]:
    """Yield one shape."""
    table = options(
        "Conv3D", padding=0, strideD=2, strideW=2, strideH=2, dilationDFactor=1, dilationWFactor=1, dilationHFactor=1
    )
    inputs = [const("INT32", [1, 4, 4, 4, 3]), tensor("FLOAT32", 2, 2, 2, 3, 4), tensor("FLOAT32", 1, 2, 2, 2, 4)]
    yield Op(name, inputs, [tensor("FLOAT32")], table)


@models("DILATE")
def dilate(name: str) -> Iterator[Op]:
    """Yield both types of elements."""
    for type_ in ("FLOAT32", "INT32", "INT8"):
        inputs = [tensor(type_, 2, 3, scale=0), const("INT32", [2, 1]), const(type_, 0, scale=0)]
        yield Op(name, inputs, [tensor(type_, scale=0)])


@models("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(name: str) -> Iterator[Op]:
    """Yield all types, and positions that are out of range."""
    for type_, index in product(("FLOAT32", "FLOAT16", "INT32", "INT64", "INT8", "BOOL"), ("INT32", "INT64")):
        for begin in ((1, 1), (0, 9), (-5, 0)):
            inputs = [tensor(type_, 4, 5), tensor(type_, 2, 3), tensor(index, 2, values=begin)]
            yield Op(name, inputs, [tensor(type_)])


@models("MATRIX_DIAG")
def matrix_diag(name: str) -> Iterator[Op]:
    """Yield all types."""
    for type_ in ("FLOAT32", "INT32", "INT64", "INT8", "UINT8"):
        yield Op(name, [tensor(type_, 2, 3)], [tensor(type_)], options("MatrixDiag"))


@models("MATRIX_SET_DIAG")
def matrix_set_diag(name: str) -> Iterator[Op]:
    """Yield all types."""
    for type_ in ("FLOAT32", "INT32", "INT64", "INT8", "UINT8"):
        yield Op(name, [tensor(type_, 2, 3, 4), tensor(type_, 2, 3)], [tensor(type_)], options("MatrixSetDiag"))


@models("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(name: str) -> Iterator[Op]:
    """Yield several thresholds."""
    soft = name == "NON_MAX_SUPPRESSION_V5"
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]])
    scores = [0.9, 0.75, 0.6, 0.95, 0.5]
    for overlap, least in product((0.3, 0.8), (0.0, 0.7)):
        inputs = [tensor("FLOAT32", 5, 4, values=boxes), tensor("FLOAT32", 5, values=scores), const("INT32", 4)]
        inputs += [const("FLOAT32", overlap), const("FLOAT32", least)]
        inputs += [const("FLOAT32", 0.5)] if soft else []
        outputs = [tensor("INT32"), *([tensor("FLOAT32")] if soft else []), tensor("INT32")]
        yield Op(name, inputs, outputs, options(f"NonMaxSuppressionV{name[-1]}"))


@models("MULTINOMIAL")
def multinomial(name: str) -> Iterator[Op]:
    """Yield both types of the result, with seeds."""
    for result in ("INT32", "INT64"):
        inputs = [tensor("FLOAT32", 2, 4), const("INT32", 6)]
        yield Op(name, inputs, [tensor(result)], options("Random", seed=3, seed2=5))


@models("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def random(name: str) -> Iterator[Op]:
    """Yield a shape, with seeds."""
    yield Op(name, [tensor("INT32", 2, values=[2, 3])], [tensor("FLOAT32")], options("Random", seed=3, seed2=5))


@models("RFFT2D")
def rfft2d(name: str) -> Iterator[Op]:
    """Yield two sizes."""
    for size in ((4, 4), (2, 8)):
        yield Op(name, [tensor("FLOAT32", 4, 8), const("INT32", size)], [tensor("COMPLEX64")])


@models("SCATTER_ND")
def scatter_nd(name: str) -> Iterator[Op]:
    """Yield all types, constant and variable indices, and indices that occur twice."""
    for type_, index in product(("FLOAT32", "INT32", "INT64", "INT8", "UINT8", "BOOL"), ("INT32", "INT64")):
        for indices, updates, shape in (
            ([[1], [3]], (2,), (5,)),
            ([[1], [1]], (2,), (5,)),
            ([[0, 1], [1, 0]], (2, 3), (2, 2, 3)),
        ):
            last = const(index, shape)
            yield Op(
                name, [const(index, indices), tensor(type_, *updates), last], [tensor(type_)], options("ScatterNd")
            )
            variable = tensor(index, *const(index, indices).shape, values=indices)
            yield Op(name, [variable, tensor(type_, *updates), last], [tensor(type_)], options("ScatterNd"))


@models("SEGMENT_SUM")
def segment_sum(name: str) -> Iterator[Op]:
    """Yield both types."""
    for type_ in ("FLOAT32", "INT32"):
        inputs = [tensor(type_, 4, 3), tensor("INT32", 4, values=[0, 0, 1, 2])]
        yield Op(name, inputs, [tensor(type_)], options("SegmentSum"))


@models("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN")
def unsorted_segments(name: str) -> Iterator[Op]:
    """Yield both types."""
    kind = "UnsortedSegment" + name.rpartition("_")[2].title()
    for type_ in ("FLOAT32", "INT32"):
        inputs = [tensor(type_, 4, 3), tensor("INT32", 4, values=[2, 0, 0, 1]), const("INT32", 4)]
        yield Op(name, inputs, [tensor(type_)], options(kind))


@models("SPARSE_TO_DENSE")
def sparse_to_dense(name: str) -> Iterator[Op]:
    """Yield all types."""
    for type_, index in product(("FLOAT32", "INT32", "INT64", *QUANTIZED), ("INT32", "INT64")):
        inputs = [tensor(index, 3, values=[0, 2, 3]), const(index, [5]), tensor(type_, 3), const(type_, 1)]
        yield Op(name, inputs, [tensor(type_)], options("SparseToDense"))


@models("UNIQUE")
def unique(name: str) -> Iterator[Op]:
    """Yield all types."""
    for type_, index in product(("FLOAT32", "INT32", "INT64"), (2, 4)):
        outputs = [tensor(type_), tensor("INT32" if index == 2 else "INT64")]
        yield Op(name, [tensor(type_, 6, values=[3, 1, 3, 2, 1, 7])], outputs, options("Unique", idxOutType=index))


@models("REDUCE_WINDOW")
def reduce_window(name: str) -> Iterator[Op]:
    """Yield some functions."""
    for type_, function in product(("FLOAT32", "INT32"), (1, 2, 3, 4)):
        vectors = [const("INT64", values) for values in ((2, 2), (1, 1), (1, 1))]
        inputs = [tensor(type_, 4, 5), const(type_, 0), *vectors]
        yield Op(name, inputs, [tensor(type_)], options("ReduceWindow", reduceFunction=function))
