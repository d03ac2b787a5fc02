"""Pooling, resizing and normalization."""

from collections.abc import Iterator

from tests.nnhal.tflite.build import Op, ints, options, schema
from tests.nnhal.tflite.corpus.cases import models, tensor

SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
_SIGNED_UNIT = {"INT8": (1 / 128, 0), "UINT8": (1 / 128, 128)}


@models("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pooling(name: str) -> Iterator[Op]:
    """Yield all types, windows, strides and activations, and outputs of another scale."""
    for type_ in ("FLOAT32", "INT8", "UINT8", "INT16", "FLOAT16"):
        for padding in (SAME, VALID):
            for width, height, x, y in ((2, 2, 2, 2), (3, 2, 1, 1), (1, 1, 2, 3), (7, 6, 1, 1), (5, 3, 2, 1)):
                table = options("Pool2D", padding=padding, filterWidth=width, filterHeight=height, strideW=x, strideH=y)
                yield Op(name, [tensor(type_, 2, 6, 7, 3)], [tensor(type_)], table)
        for activation in (1, 2, 3):
            table = options(
                "Pool2D", filterWidth=2, filterHeight=2, strideW=2, strideH=2, fusedActivationFunction=activation
            )
            yield Op(name, [tensor(type_, 2, 6, 7, 3)], [tensor(type_)], table)
        table = options("Pool2D", filterWidth=2, filterHeight=2, strideW=2, strideH=2)
        yield Op(name, [tensor(type_, 2, 6, 7, 3)], [tensor(type_, scale=0.1 if type_ != "FLOAT32" else None)], table)
        yield Op(name, [tensor(type_, 6, 7, 3)], [tensor(type_)], table)


_FLAGS = [(False, False), (True, False), (False, True), (True, True)]


@models("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(name: str) -> Iterator[Op]:
    """Yield all types, sizes and flags."""
    kind = "ResizeBilinear" if name == "RESIZE_BILINEAR" else "ResizeNearestNeighbor"
    for type_ in ("FLOAT32", "INT8", "UINT8", "INT16", "FLOAT16"):
        for align, half in _FLAGS:
            table = options(kind, alignCorners=align, halfPixelCenters=half)
            for size in ((4, 6), (2, 3), (5, 7), (8, 3), (1, 1), (3, 4)):
                yield Op(name, [tensor(type_, 2, 3, 4, 2), ints(*size)], [tensor(type_)], table)
        table = options(kind)
        yield Op(name, [tensor(type_, 1, 3, 4, 2), tensor("INT32", 2, values=[6, 5])], [tensor(type_)], table)
        yield Op(name, [tensor(type_, 3, 4, 2), ints(6, 5)], [tensor(type_)], table)


@models("L2_NORMALIZATION")
def l2_normalization(name: str) -> Iterator[Op]:
    """Yield all types and ranks, and an activation."""
    for shape in ((), (5,), (2, 5), (2, 3, 4), (1, 3, 3, 5), (2, 1, 2, 3, 4)):
        yield Op(name, [tensor("FLOAT32", *shape)], [tensor("FLOAT32")], options("L2Norm"))
        for type_ in ("INT8", "UINT8"):
            scale, zero_point = _SIGNED_UNIT[type_]
            yield Op(
                name, [tensor(type_, *shape)], [tensor(type_, scale=scale, zero_point=zero_point)], options("L2Norm")
            )
    yield Op(name, [tensor("INT8", 2, 5)], [tensor("INT8", scale=0.02)], options("L2Norm"))
    yield Op(name, [tensor("FLOAT16", 2, 5)], [tensor("FLOAT16")], options("L2Norm"))
    for activation in (1, 2, 3):
        table = options("L2Norm", fusedActivationFunction=activation)
        yield Op(name, [tensor("FLOAT32", 2, 5)], [tensor("FLOAT32")], table)


@models("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(name: str) -> Iterator[Op]:
    """Yield all types and several parameters."""
    for type_ in ("FLOAT32", "FLOAT16", "INT8"):
        for radius, bias, alpha, beta in ((2, 1.0, 0.5, 0.5), (1, 2.0, 0.1, 0.75), (20, 1.0, 1.0, 1.0)):
            table = options("LocalResponseNormalization", radius=radius, bias=bias, alpha=alpha, beta=beta)
            for shape in ((1, 2, 3, 8), (2, 8), (2, 3, 2, 2, 5)):
                yield Op(name, [tensor(type_, *shape)], [tensor(type_)], table)
