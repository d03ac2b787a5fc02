"""The packer's buffers are read by the flatbuffers library and by the engine's own schema."""

from typing import Any

import pytest

from driver.backends.litert.flatbuffer import PLACE, Packer, Table

flatbuffers: Any = pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
schema: Any = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="LiteRT is not installed")

MODEL = Table((0, "L"), (2, PLACE), (4, PLACE))
GRAPH = Table((0, PLACE), (1, PLACE))
TENSOR = Table((0, PLACE), (1, "b"), (2, "L"), (8, "?"), (4, PLACE))
QUANTIZATION = Table((6, "i"), (3, PLACE), (2, PLACE))
BUFFER = Table((1, "Q"), (2, "Q"))


@pytest.mark.parametrize("rank", range(6))
def test_every_field_comes_back(rank: int) -> None:
    packer = Packer()
    shape, scales, points = list(range(1, rank + 1)), [0.5, 0.25, 2.0][:rank], [2**40, -7, 3][:rank]
    quantization = packer.table(QUANTIZATION, rank, packer.vector("q", points), packer.vector("f", scales))
    tensors = [packer.table(TENSOR, packer.vector("i", shape), -3, 2**31 + i, True, quantization) for i in range(3)]
    graph = packer.table(GRAPH, packer.children(tensors), packer.vector("i", [7] * rank))
    buffers = packer.children([packer.table(BUFFER, 2**33 + rank, 5), packer.table(BUFFER, 0, 0)])
    packed = packer.finish(packer.table(MODEL, 3, packer.children([graph]), buffers), b"TFL3")
    assert packed[4:8] == b"TFL3" and len(packed) % 8 == 0
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(packed, 0))
    assert model.version == 3 and model.description is None
    assert [(b.offset, b.size) for b in model.buffers] == [(2**33 + rank, 5), (0, 0)]
    (read,) = model.subgraphs
    assert list(read.inputs) == [7] * rank
    for i, tensor in enumerate(read.tensors):
        assert list(tensor.shape) == shape
        assert (tensor.type, tensor.buffer, tensor.hasRank, tensor.isVariable) == (-3, 2**31 + i, True, False)
        assert list(tensor.quantization.scale) == scales and list(tensor.quantization.zeroPoint) == points
        assert tensor.quantization.quantizedDimension == rank


@pytest.mark.parametrize("before", range(9))
def test_a_finished_buffer_is_found_wherever_it_lands(before: int) -> None:
    options = schema.Conv2DOptionsT()
    options.strideW, options.dilationHFactor = 3, 5
    builder = flatbuffers.Builder(64)
    builder.Finish(options.Pack(builder))
    packer = Packer()
    packer.vector("b", [1] * before)
    place = packer.finished(bytes(builder.Output()))
    operator = Table((0, "L"), (3, "B"), (4, PLACE))
    packed = packer.finish(packer.table(operator, 9, schema.BuiltinOptions.Conv2DOptions, place), b"TEST")
    read = schema.OperatorT.InitFromObj(schema.Operator.GetRootAs(packed, 0))
    assert read.opcodeIndex == 9
    assert (read.builtinOptions.strideW, read.builtinOptions.dilationHFactor) == (3, 5)
