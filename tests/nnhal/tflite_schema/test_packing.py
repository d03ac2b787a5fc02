"""Packed models are read as they are meant by the engine's own code and by the reader here."""

import numpy as np

from nnhal.tflite_schema.packing import (
    IDENTIFIER,
    PackedOperator,
    PackedSubgraph,
    PackedTensor,
    Quantization,
    TensorSpec,
    pack,
)
from nnhal.tflite_schema.reader import Fields, FlatbufferReader
from tests.nnhal.tflite.build import schema, unpack

FLOAT = TensorSpec("FLOAT32")
WEIGHTS = np.arange(5, dtype=np.float32)


def packed(*operators: PackedOperator, tensors: tuple[PackedTensor, ...] = (), constants: int = 0) -> bytes:
    data = [WEIGHTS.view(np.uint8).data] * constants
    return pack([PackedSubgraph(tensors, operators, (0,), (1,))], data)


def read(data: bytes) -> Fields:
    return FlatbufferReader(np.frombuffer(data, np.uint8), IDENTIFIER, strict=True).root("Model")


def test_tensors_have_their_fields() -> None:
    quantization = Quantization((0.5, 2.0), (1, -2), 1)
    data = packed(
        tensors=(
            PackedTensor(TensorSpec("INT8", quantization), (3, 2), 0, is_variable=True),
            PackedTensor(FLOAT, (-1, 5), 1, is_variable=False),
        ),
        constants=1,
    )
    first, second = unpack(data).subgraphs[0].tensors
    assert (list(first.shape), first.type, first.isVariable) == ([3, 2], schema.TensorType.INT8, True)
    assert (list(first.quantization.scale), list(first.quantization.zeroPoint)) == ([0.5, 2.0], [1, -2])
    assert first.quantization.quantizedDimension == 1
    assert (list(second.shape), list(second.shapeSignature), second.buffer) == ([1, 5], [-1, 5], 1)


def test_options_have_their_fields() -> None:
    operator = PackedOperator(
        "RESHAPE", (0,), (1,), "ReshapeOptions", {"new_shape": [2, -1]}, intermediates=(0,), version=7
    )
    handle = PackedOperator("VAR_HANDLE", (), (1,), "VarHandleOptions", {"container": None, "shared_name": "weight"})
    model = unpack(packed(operator, handle))
    first, second = model.subgraphs[0].operators
    assert (list(first.inputs), list(first.outputs), list(first.intermediates)) == ([0], [1], [0])
    assert list(first.builtinOptions.newShape) == [2, -1]
    assert (second.builtinOptions.container, second.builtinOptions.sharedName) == (None, b"weight")
    assert [code.version for code in model.operatorCodes] == [7, 1]


def test_custom_operator_has_its_name_and_options() -> None:
    model = unpack(packed(PackedOperator("CUSTOM", (0,), (1,), "", {}, custom_code="Mine", custom_options=b"abc")))
    assert model.operatorCodes[0].customCode == b"Mine"
    assert bytes(model.subgraphs[0].operators[0].customOptions) == b"abc"


def test_constants_are_aligned() -> None:
    """The schema demands 16 bytes: kernels read constants with vector instructions."""
    data = packed(constants=3)
    assert len(data) % 16 == 0
    regions = [buffer["data"] for buffer in read(data)["buffers"][1:]]
    assert len(regions) == 3
    for begin, end in regions:
        assert begin % 16 == 0
        np.testing.assert_array_equal(np.frombuffer(data[begin:end], np.float32), WEIGHTS)


def test_constants_outside_have_their_sizes() -> None:
    data = pack([PackedSubgraph((), (), (), ())], [12, 2**33])
    buffers = FlatbufferReader(np.frombuffer(data, np.uint8), IDENTIFIER).root("Model")["buffers"]
    assert [buffer["size"] for buffer in buffers] == [0, 12, 2**33]
