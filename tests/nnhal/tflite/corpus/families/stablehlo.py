"""StableHLO operators that LiteRT has kernels for."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from flatbuffers import flexbuffers

from tests.nnhal.tflite.build import Branch, Op, options, schema
from tests.nnhal.tflite.corpus.cases import SampledTensor, const, models, tensor, with_constants

_SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (2, 1, 3, 2, 2)]
_TYPES = ("FLOAT32", "FLOAT16", "INT32", "INT64", "INT16", "INT8", "UINT8")


def _plain(type_: str, *shape: int) -> SampledTensor:
    """Return a tensor without quantization."""
    return tensor(type_, *shape, scale=0)


@models("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")
def arithmetic(name: str) -> Iterator[Op]:
    """Yield all types and ranks, with constants and with quantization."""
    for type_, shape in product(_TYPES, _SHAPES):
        op = Op(name, [_plain(type_, *shape), _plain(type_, *shape)], [_plain(type_)])
        yield op
        yield with_constants(op, 1)
    yield Op(name, [tensor("INT8", 2, 3), tensor("INT8", 2, 3, scale=0.02)], [tensor("INT8", scale=0.07)])


@models("STABLEHLO_AND")
def bits_and(name: str) -> Iterator[Op]:
    """Yield integers and truth values."""
    for type_, shape in product(("BOOL", "INT32", "INT16", "INT8", "INT64"), _SHAPES):
        yield Op(name, [_plain(type_, *shape), _plain(type_, *shape)], [_plain(type_)])


@models("STABLEHLO_SHIFT_LEFT")
def shift_left(name: str) -> Iterator[Op]:
    """Yield integers."""
    for type_, shape in product(("INT32", "INT16", "INT8", "UINT8", "INT64"), _SHAPES):
        count = tensor(type_, *shape, scale=0, low=0, high=3)
        yield Op(name, [_plain(type_, *shape), count], [_plain(type_)], options("StablehloShiftLeft"))


@models("STABLEHLO_PAD")
def pad(name: str) -> Iterator[Op]:
    """Yield paddings outside and between elements, and negative ones."""
    paddings: list[tuple[Sequence[int], Sequence[int], Sequence[int]]] = [
        ([1, 0], [0, 2], [0, 0]),
        ([0, 0], [0, 0], [1, 2]),
        ([-1, 1], [0, -1], [0, 1]),
    ]
    for type_, (low, high, interior) in product(("FLOAT32", "INT32", "INT8", "INT64"), paddings):
        table = options("StablehloPad", edgePaddingLow=low, edgePaddingHigh=high, interiorPadding=interior)
        yield Op(name, [_plain(type_, 3, 4), const(type_, 1, scale=0)], [_plain(type_)], table)


@models("STABLEHLO_GATHER")
def gather(name: str) -> Iterator[Op]:
    """Yield slices of rows."""
    for type_, index in product(("FLOAT32", "INT32", "INT8", "INT64"), ("INT32", "INT64")):
        table = options(
            "StablehloGather", offsetDims=[1], collapsedSliceDims=[0], startIndexMap=[0], indexVectorDim=1,
            sliceSizes=[1, 3],
        )  # fmt: skip
        rows = tensor(index, 4, 1, low=0, high=4)
        yield Op(name, [_plain(type_, 5, 3), rows], [_plain(type_, 4, 3)], table)


def _updated(type_: str, operator: str) -> Branch:
    """Return a subgraph that combines two numbers."""
    first, second, result = (_plain(type_) for _ in range(3))
    return Branch([Op(operator, [first, second], [result])], [first, second], [result])


@models("STABLEHLO_SCATTER")
def scatter(name: str) -> Iterator[Op]:
    """Yield rows that are added or compared."""
    for type_, operator in product(("FLOAT32", "INT32"), ("STABLEHLO_ADD", "STABLEHLO_MAXIMUM")):
        table = options(
            "StablehloScatter", updateWindowDims=[1], insertedWindowDims=[0], scatterDimsToOperandDims=[0],
            indexVectorDim=1, updateComputationSubgraphIndex=1,
        )  # fmt: skip
        rows = tensor("INT32", 2, 1, low=0, high=4)
        inputs = [_plain(type_, 5, 3), rows, _plain(type_, 2, 3)]
        yield Op(name, inputs, [_plain(type_)], table, branches=[_updated(type_, operator)])


@models("STABLEHLO_REDUCE_WINDOW")
def reduce_window(name: str) -> Iterator[Op]:
    """Yield sums and maxima of windows."""
    for type_, operator in product(("FLOAT32", "INT32"), ("STABLEHLO_ADD", "STABLEHLO_MAXIMUM")):
        table = options(
            "StablehloReduceWindow", windowDimensions=[2, 2], windowStrides=[1, 2], baseDilations=[1, 1],
            windowDilations=[1, 1], padding=[0, 0, 0, 1], bodySubgraphIndex=1,
        )  # fmt: skip
        inputs = [_plain(type_, 4, 5), const(type_, 0)]
        yield Op(name, inputs, [_plain(type_)], table, branches=[_updated(type_, operator)])


@models("STABLEHLO_RNG_BIT_GENERATOR")
def random_bits(name: str) -> Iterator[Op]:
    """Yield both algorithms."""
    algorithms = schema.RngAlgorithm
    for algorithm, type_ in product((algorithms.PHILOX, algorithms.THREEFRY, algorithms.DEFAULT), ("INT32", "INT64")):
        table = options("StablehloRngBitGenerator", algorithm=algorithm)
        state = tensor("UINT64", 2, low=0, high=100)
        yield Op(name, [state], [tensor("UINT64", 2), _plain(type_, 4, 3)], table)


@models("STABLEHLO_COMPOSITE")
def composite(name: str) -> Iterator[Op]:
    """Yield a named composition of one operator."""
    first, second, result = (tensor("FLOAT32", 2, 3) for _ in range(3))
    branch = Branch([Op("ADD", [first, second], [result], options("Add"))], [first, second], [result])
    attributes = flexbuffers.Builder()
    with attributes.Map():
        attributes.Key("level")
        attributes.Int(1)
    table = options(
        "StableHLOComposite",
        name="test.add",
        decompositionSubgraphIndex=1,
        compositeAttributes=np.frombuffer(attributes.Finish(), np.uint8),
    )
    inputs = [tensor("FLOAT32", 2, 3), tensor("FLOAT32", 2, 3)]
    yield Op(name, inputs, [tensor("FLOAT32", 2, 3)], table, branches=[branch])


@models("STABLEHLO_CASE")
def case(name: str) -> Iterator[Op]:
    """Yield a choice between two subgraphs."""
    for index in (0, 1):
        chosen = tensor("INT32", values=index)
        branches = []
        for operator in ("NEG", "ABS"):
            source, result = tensor("FLOAT32", 2, 3), tensor("FLOAT32", 2, 3)
            branches.append(Branch([Op(operator, [source], [result])], [source], [result]))
        table = options("StablehloCase", branchSubgraphIndices=[1, 2])
        yield Op(name, [chosen, tensor("FLOAT32", 2, 3)], [tensor("FLOAT32", 2, 3)], table, branches=branches)
