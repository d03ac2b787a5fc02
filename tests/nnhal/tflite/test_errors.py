"""Errors of the TFLite import: they name the file, the operator and the reason. Damaged files raise nothing else."""

import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnhal import tflite
from nnhal.tflite import TfliteError
from nnhal.tflite_schema.reader import InvalidFlatbuffer
from nnhal.types import Model
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options, pack, quant, schema, unpack

TANH = schema.ActivationFunctionType.TANH
F = Tensor


def conv(image: Tensor, filter_: Tensor, *bias: Tensor, result: Tensor | None = None, **more: Any) -> Op:
    table = options("Conv2D", **{"padding": schema.Padding.VALID, "strideW": 1, "strideH": 1, **more})
    return Op("CONV_2D", [image, filter_, *bias], [result or F((1, 2, 2, filter_.shape[0]))], table)


def weights(*shape: int, type_: str = "FLOAT32", **more: Any) -> Tensor:
    return Tensor(shape, type_, np.ones(shape), **more)


IMAGE = (1, 2, 2, 3)


def large(*shape: int, type_: str = "FLOAT32") -> Tensor:
    return Tensor((*shape, 2**14), type_)


def cut(shape: tuple[int, ...], begin: int, end: int, stride: int, result: tuple[int, ...], **masks: int) -> Op:
    return Op(
        "STRIDED_SLICE", [F(shape), ints(begin), ints(end), ints(stride)], [F(result)], options("StridedSlice", **masks)
    )


POSITIONS: list[tuple[Op, str]] = [
    (
        Op("GATHER", [F((2, 3)), F((2, 1), "INT32")], [F((2, 1))], options("Gather", batchDims=1, axis=1)),
        "has batch dimensions and indices that are not constant",
    ),
    (
        Op(
            "GATHER",
            [F((2, 3)), Tensor((2, 1), "INT32", [0, 3])],
            [F((2, 1))],
            options("Gather", batchDims=1, axis=1),
        ),
        "has indices from 0 to 3 for length 3",
    ),
    (
        Op("GATHER_ND", [F((2, 3)), F((1, 2), "INT32")], [F((1,))]),
        "has 2 coordinates that are not constant; NNAPI's GATHER has one",
    ),
    (
        Op("SELECT_V2", [F((2, 1), "BOOL"), F((2, 3)), F((4,))], [F((2, 3))]),
        "has a rank that is only known when the model runs",
    ),
    (Op("SELECT_V2", [F((1,), "BOOL"), large(2), large(2)], [large(2)]), "NNAPI copies an input to broadcast it"),
    (Op("SELECT", [F((2,), "BOOL"), large(2), large(2)], [large(2)]), "four operations replace it"),
    (
        Op("SELECT_V2", [large(17, type_="BOOL"), large(17), F((), data=[1])], [large(17)]),
        "needs a constant of 278528 elements; at most 262144 repeat its values",
    ),
    (
        Op("SELECT", [F((2,), "BOOL"), quant((2,)), quant((2,), 0.25)], [quant((2,))]),
        "scales or zero points differ: TFLite selects stored values",
    ),
    (cut((4,), 1, 3, 0, (1,)), "has a rank that is only known when the model runs"),
    (cut((4,), 4, 5, 1, (1,), shrinkAxisMask=1), "drops dimension 0 of length 4 at 4"),
    (cut((4,), 3, 3, 1, (1,)), "has shape [0]; NNAPI has no empty tensors"),
    (
        Op(
            "STRIDED_SLICE",
            [F((4,)), F((1,), "INT32"), ints(3), ints(1)],
            [F((2,))],
            options("StridedSlice"),
        ),
        "output 0 has unknown dimensions: [0]",
    ),
    (Op("REVERSE_V2", [F((2, 3)), F((1,), "INT32")], [F((2, 3))]), "is not a constant"),
    (Op("REVERSE_V2", [F((2, 3)), ints(2)], [F((2, 3))]), "axis 2 is out of range for rank 2"),
    (
        Op("UNPACK", [F((2, 7))], [F((2,)) for _ in range(7)], options("Unpack", axis=1, num=7)),
        "7 parts, each of which needs a RESHAPE",
    ),
    (
        Op("SPLIT_V", [F((4,)), ints(1, 2), ints(0)], [F((1,)), F((2,))], options("SplitV", numSplits=2)),
        "parts of lengths [1, 2] do not make up 4",
    ),
    (
        Op("CONCATENATION", [F((2,), "INT32"), F((3,), "INT32")], [F((5,), "INT32")], options("Concatenation")),
        "integers of different shapes",
    ),
    (
        Op("CONCATENATION", [quant((2,)), quant((3,), 0.25)], [quant((5,))], options("Concatenation")),
        "scales or zero points differ",
    ),
    (
        Op("BATCH_TO_SPACE_ND", [F((4, 2, 2, 1)), ints(2, 2), Tensor((2, 2), "INT64", [0] * 4)], [F((1, 4, 4, 1))]),
        "is not int32: LiteRT reads it as if it were",
    ),
    (
        Op(
            "SPACE_TO_BATCH_ND",
            [F((1, 4, 4, 1)), ints(2, 2), Tensor((2, 2), "INT32", [-1, 1, 0, 0])],
            [F((4, 2, 2, 1))],
        ),
        "expected two numbers >= 0 for each side",
    ),
    (
        Op("PAD", [F((4,)), Tensor((1, 2), "INT32", [-1, 1])], [F((4,))]),
        "paddings are [[-1, 1]]; expected two numbers >= 0 for each dimension",
    ),
    (Op("PAD", [F((4,)), F((1, 2), "INT32")], [F((4,))]), "is not a constant"),
    (
        Op("LSH_PROJECTION", [weights(2, 3), F((), "INT32")], [F((2,), "INT32")], options("LSHProjection", type=1)),
        "has rank 0; NNAPI has no such tensors",
    ),
    (Op("TRANSPOSE", [F((2, 3)), ints(0, 0)], [F((2, 3))]), "[0, 0] is not a permutation of 2 dimensions"),
    (Op("RESHAPE", [F((4,)), ints(2, 2, type_="INT64")], [F((4,))]), "is not int32: LiteRT ignores it"),
    (Op("FLOOR_MOD", [F((4,)), F((4,))], [F((4,))]), "loses precision on real numbers"),
    (Op("ADD_N", [F((4,)) for _ in range(7)], [F((4,))]), "has 7 inputs"),
    (Op("MAXIMUM", [quant((2,)), quant((2,), 0.25)], [quant((2,))]), "TFLite compares stored values"),
    (Op("ROUND", [F((2,), "FLOAT16")], [F((2,), "FLOAT16")]), "is not float32"),
    (Op("ROUND", [large(2)], [large(2)]), "has 32768 elements: five operations replace it"),
    (Op("SIGN", [F((2,))], [F((2,))]), "is real; NNAPI has no sign"),
    (Op("EQUAL", [quant((2,)), quant((2,), 0.25)], [F((2,), "BOOL")]), "TFLite rounds before it compares"),
    (Op("EQUAL", [quant((2,), 0.001), quant((2,), 0.001)], [F((2,), "BOOL")]), "scale 0.001: TFLite's comparison"),
    (Op("LEAKY_RELU", [quant((2,))], [quant((2,))], options("LeakyRelu", alpha=0.1)), "PRELU rounds in another way"),
]

OPERATORS: list[tuple[Op, str]] = [
    (
        Op(
            "FULLY_CONNECTED",
            [F((2, 3)), weights(4, 3)],
            [F((2, 4))],
            options("FullyConnected", fusedActivationFunction=TANH),
        ),
        "fused activation TANH has no NNAPI counterpart",
    ),
    (Op("COS", [F((2,))], [F((2,))]), "loses precision near the zeros"),
    (Op("IF", [F((1,), "BOOL"), F((2,))], [F((2,))]), "has no option then_subgraph_index"),
    (
        Op("IF", [F((1,), "BOOL"), F((2,))], [F((2,))], options("If", thenSubgraphIndex=1, elseSubgraphIndex=2)),
        "runs subgraph 1 of 1",
    ),
    (
        Op("FULLY_CONNECTED", [F((2, 3)), weights(4, 3)], [F((2, 4))], options("FullyConnected", weightsFormat=1)),
        "shuffled weights have no NNAPI counterpart",
    ),
    (Op("CONV_2D", [F(IMAGE), weights(2, 1, 1, 3)], [F((1, 2, 2, 2))]), "has no option padding"),
    (
        Op("CONV_2D", [F(IMAGE), weights(2, 1, 1, 3)], [F((1, 2, 2, 2))], options("Reshape")),
        "has no option padding",
    ),
    (Op("ADD", [F((2,))], [F((2,))]), "lacks input 1"),
    (Op("ADD", [F((2,)), None], [F((2,))]), "lacks input 1"),
    (
        Op(
            "ADD",
            [F((2,), "INT32"), F((2,), "INT32")],
            [F((2,), "INT32")],
            options("Add", fusedActivationFunction=TANH),
        ),
        "fused activation TANH has no NNAPI counterpart",
    ),
    (Op("ADD", [F((1, 1, 1, 1, 2)), F((2,))], [F((1, 1, 1, 1, 2))]), "NNAPI's ADD does not fit: input0 has rank 5"),
    (Op("BATCH_MATMUL", [F((2, 3, 4)), F((3, 4, 5))], [F((2, 3, 5))]), "do not go together"),
    # Quantization
    (
        Op("SOFTMAX", [quant((2, 3))], [quant((2, 3), 0.5, 0)], options("Softmax", beta=1.0)),
        "NNAPI's SOFTMAX does not fit: output 0 (TENSOR_QUANT8_ASYMM) has scale 0.5 and zero point 0; "
        "it must have 0.00390625 and 0",
    ),
    (
        Op("SOFTMAX", [quant((2, 3))], [quant((2, 3), 1 / 256, -127, "INT8")], options("Softmax", beta=1.0)),
        "output 0 (output) is TENSOR_QUANT8_ASYMM_SIGNED, not TENSOR_QUANT8_ASYMM",
    ),
    (Op("LOGISTIC", [quant((2,))], [quant((2,), 1 / 256, 1)]), "it must have 0.00390625 and 0"),
    (Op("TANH", [quant((2,), type_="INT8")], [quant((2,), 1 / 128, 1, "INT8")]), "it must have 0.0078125 and 0"),
    (Op("RESHAPE", [quant((2,)), ints(1, 2)], [quant((1, 2), 0.25)]), "it must have 0.5 and 3"),
    (
        Op("SPLIT", [ints(0), quant((2,))], [quant((1,)), quant((1,), 0.25)], options("Split", numSplits=2)),
        "output 1 (TENSOR_QUANT8_ASYMM) has scale 0.25",
    ),
    (
        conv(F(IMAGE), weights(2, 1, 1, 3, type_="INT8", scale=(0.5,), zero_point=(0,))),
        "NNAPI's CONV_2D does not fit: input 1 (filter) is TENSOR_QUANT8_ASYMM_SIGNED, not TENSOR_FLOAT32",
    ),
    (
        conv(
            quant(IMAGE, type_="INT8"),
            weights(2, 1, 1, 3, type_="INT8", scale=(0.5,), zero_point=(0,)),
            F((2,), "INT32"),
            result=quant((1, 2, 2, 2), type_="INT8"),
        ),
        "is a quantized bias that is not a constant",
    ),
    (
        conv(F(IMAGE), weights(2, 1, 1, 3, type_="INT8", scale=(0.5, 0.5), zero_point=(0, 1))),
        "is quantized per channel, but is not int8 with zero points 0",
    ),
    (
        conv(F(IMAGE), weights(2, 1, 1, 3, type_="UINT8", scale=(0.5, 0.5), zero_point=(0, 0))),
        "is quantized per channel, but is not int8 with zero points 0",
    ),
    (
        conv(F(IMAGE), weights(2, 1, 1, 3, type_="INT8", scale=(0.5, 0.5), zero_point=(0, 0), dimension=3)),
        "has 2 scales along dimension 3 of [2, 1, 1, 3]",
    ),
    (Op("QUANTIZE", [F((2,))], [quant((2,), 0.0)]), "has a scale that is not positive"),
    (Op("QUANTIZE", [F((2,))], [quant((2,), float("nan"))]), "has a scale that is not positive"),
    (
        Op("QUANTIZE", [F((2,))], [quant((2,), 0.5, 256)]),
        "has zero point 256; TENSOR_QUANT8_ASYMM has 0 to 255",
    ),
    (Op("QUANTIZE", [F((2,))], [quant((2,), 0.5, 1, "INT16")]), "TENSOR_QUANT16_SYMM has 0 to 0"),
    # Tensors
    (Op("ADD", [F((2,)), F((2,), more={"isVariable": True})], [F((2,))]), "is a variable, which keeps its value"),
    (Op("ADD", [F((2,)), F((2,), data=[1, 2], more={"isVariable": True})], [F((2,))]), "is a variable with a value"),
    (Op("EXP", [F((2,))], [F((2,), "FLOAT64")]), "is FLOAT64, a type that NNAPI lacks"),
    (Op("EXP", [F((2, 0))], [F((2, 0))]), "has shape [2, 0]; NNAPI has no empty tensors"),
    (Op("EXP", [F((2, -2))], [F((2,))]), "has shape [2, -2]"),
    (Op("ADD", [F((2,)), F((3,), data=[1, 2])], [F((2,))]), "has 8 bytes for float32 of shape [3]"),
    (
        Op("MAXIMUM", [F((1,), "INT64"), ints(2**31, type_="INT64")], [F((1,), "INT64")]),
        "values that INT32 cannot hold",
    ),
    (Op("MINIMUM", [F((1,), "INT64"), ints(-(2**31) - 1, type_="INT64")], [F((1,), "INT64")]), "INT32 cannot hold"),
    (Op("ADD", [F((1,), "INT64"), ints(1, type_="INT64")], [F((1,), "INT64")]), "values that may exceed 32 bits"),
    # Operators
    (conv(F(IMAGE), weights(2, 1, 1, 2)), "2 of 3 channels in the filter"),
    (conv(F((1, 2, 2, 4)), weights(2, 1, 1, 2), dilationWFactor=2), "dilated groups, have no counterpart"),
    (conv(F((2, 2, 3)), weights(2, 1, 1, 3)), "has shape [2, 2, 3]; expected rank 4"),
    (conv(F(IMAGE), weights(2, 1, 1, 3), padding=2), "padding 2 is neither SAME nor VALID"),
    (
        Op(
            "DEPTHWISE_CONV_2D",
            [F(IMAGE), weights(1, 1, 1, 4)],
            [F((1, 2, 2, 4))],
            options("DepthwiseConv2D", padding=0, strideW=1, strideH=1),
        ),
        "4 channels are not a multiple of the input's 3",
    ),
    (
        Op("CONCATENATION", [F((2,)), F((2,))], [F((4,))], options("Concatenation", fusedActivationFunction=1)),
        "fused activation RELU: the NNAPI operation has none",
    ),
    (
        Op("CONCATENATION", [F((2,))], [F((2,))], options("Concatenation", axis=1)),
        "axis 1 is out of range for rank 1",
    ),
    (Op("CONCATENATION", [F((2,))], [F((2,))], options("Concatenation", axis=-2)), "axis -2 is out of range"),
    (Op("ARG_MAX", [F((2, 3)), F((1,), "INT32")], [F((2,), "INT32")]), "is not a constant"),
    (Op("ARG_MAX", [F((2, 3)), ints(0, 1)], [F((2,), "INT32")]), "has 2 elements; expected 1"),
    (Op("TOPK_V2", [F((2,)), ints(1)], [F((1,)), F((1,), "INT32")]), "among equal values"),
    (Op("FILL", [F((1,), "INT32"), ints(2**40, type_="INT64")], [F((2,), "INT64")]), "does not fit NNAPI's INT32"),
    (Op("RESIZE_BILINEAR", [F((1, 2, 2, 1)), ints(4)], [F((1, 4, 4, 1))]), "the size has shape [1]; expected [2]"),
    *POSITIONS,
]


@pytest.mark.parametrize("op, reason", OPERATORS, ids=[f"{i}-{op.name}" for i, (op, _) in enumerate(OPERATORS)])
def test_unsupported_operator_is_rejected(op: Op, reason: str) -> None:
    with pytest.raises(TfliteError) as caught:
        tflite.parse(build(op), "kws.tflite", extension=False)
    assert str(caught.value).startswith(f"kws.tflite: operator 0 ({op.name}): ")
    assert reason in str(caught.value)


def test_hash_table_is_refused() -> None:
    number = F((2,))
    table = Op("HASHTABLE", [], [F((1,), "RESOURCE")], options("Hashtable"))
    with pytest.raises(TfliteError, match=r"operator 0 \(HASHTABLE\): uses a hash table, which NNAPI lacks"):
        tflite.parse(build(table, Op("EXP", [number], [F((2,))]), inputs=[number], outputs=[*table.outputs]))


def test_message_names_file_operator_and_custom_code(tmp_path: Path) -> None:
    middle = F((2,))
    path = tmp_path / "ssd.tflite"
    path.write_bytes(build(Op("EXP", [F((2,))], [middle]), Op("CUSTOM", [middle], [F((2,))], custom="Detect")))
    with pytest.raises(TfliteError) as caught:
        tflite.load(path)
    reason = "has no converter to NNAPI; custom operator 'Detect' is not part of LiteRT"
    advice = "nnhal.litert.Interpreter has LiteRT run in the program what no device runs"
    assert str(caught.value) == f"ssd.tflite: operator 1 (CUSTOM Detect): {reason}; {advice}"


# ---- Graphs ---------------------------------------------------------------------------------------------


def sparse_layout() -> bytes:
    sparse = F((2,), data=[1, 2], name="c", more={"sparsity": schema.SparsityParametersT()})
    return build(Op("ADD", [F((2,)), sparse], [F((2,))]))


def unwritten_output() -> bytes:
    return build(Op("EXP", [F((2,))], [F((2,))]), outputs=[F((2,), name="c")])


def wrong_order() -> bytes:
    a, b, c = F((2,)), F((2,), name="b"), F((2,))
    return build(Op("EXP", [b], [c]), Op("EXP", [a], [b]), inputs=[a], outputs=[c])


def written_twice() -> bytes:
    a, b = F((2,)), F((2,), name="b")
    return build(Op("EXP", [a], [b]), Op("LOG", [a], [b]))


def written_constant() -> bytes:
    a, b = F((2,)), F((2,), data=[1, 2], name="b")
    return build(Op("EXP", [a], [b]), Op("ADD", [a, b], [F((2,))]))


def edited(change: Callable[[Any], None]) -> Callable[[], bytes]:
    def make() -> bytes:
        model = unpack(build(Op("EXP", [F((2,))], [F((2,))])))
        change(model)
        return pack(model)

    return make


def _set(path: str, value: object) -> Callable[[], bytes]:
    """Set a field of the file, for example `subgraphs.0.inputs`."""

    def change(model: Any) -> None:
        *parents, last = path.split(".")
        for step in parents:
            model = model[int(step)] if step.isdigit() else getattr(model, step)
        setattr(model, last, value)

    return edited(change)


@pytest.mark.parametrize(
    "make, reason",
    [
        (sparse_layout, "tensor 1 ('c') has an inconsistent sparse layout: 0 levels for rank 1 and 0 blocks"),
        (unwritten_output, "tensor 2 ('c') has no value here: no earlier operator writes it"),
        (wrong_order, "operator 0 (EXP): tensor 0 ('b') has no value here: no earlier operator writes it"),
        (written_twice, "operator 1 (LOG): tensor 1 ('b') is written, but has a value already"),
        (written_constant, "operator 0 (EXP): tensor 1 ('b') is written, but has a value already"),
        (_set("subgraphs.0.operators", []), "added operator (RESHAPE): tensor 1 ('') has no value here"),
        (_set("subgraphs.0.inputs", []), "has no inputs"),
        (_set("subgraphs.0.outputs", []), "has no outputs"),
        (_set("subgraphs.0.inputs", [0, 0]), "has a tensor twice among its inputs"),
        (_set("subgraphs.0.outputs", [2]), "refers to tensor 2 of 2"),
        (_set("subgraphs.0.inputs", [-1]), "refers to tensor -1 of 2"),
        (_set("subgraphs.0.operators.0.inputs", [-2]), "refers to tensor -2 of 2"),
        (_set("subgraphs.0.operators.0.opcodeIndex", 1), "operator 0 is damaged: it refers to operator code 1 of 1"),
        (_set("subgraphs.0.tensors.0.buffer", 9), "tensor 0 is damaged: it refers to buffer 9 of 1"),
        (_set("subgraphs", []), "has no subgraph"),
        (_set("version", 2), "has version 2 of the schema; expected 3"),
    ],
)
def test_invalid_graph_is_rejected(make: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(TfliteError, match=re.escape(reason)) as caught:
        tflite.parse(make(), "kws.tflite")
    assert str(caught.value).startswith("kws.tflite: ")


# ---- Damaged files --------------------------------------------------------------------------------------


def small_model() -> bytes:
    filter_ = Tensor((40, 1, 1, 3), "INT8", np.ones(120), (0.5,) * 40, (0,) * 40)
    image, middle = quant((1, 2, 2, 3), type_="INT8"), quant((1, 2, 2, 40), type_="INT8")
    first = conv(image, filter_, Tensor((40,), "INT32", np.arange(40)), result=middle)
    return build(first, Op("RESHAPE", [middle, ints(4, 40)], [quant((4, 40), type_="INT8")]))


@pytest.mark.parametrize("data", [b"TFL3", b"\x04\0\0\0TFL2" + bytes(100), b"PK\x03\x04" + bytes(100)])
def test_other_file_is_rejected(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tflite").write_bytes(data)
    with pytest.raises(TfliteError, match=r"x\.tflite: is not a \.tflite file"):
        tflite.load(tmp_path / "x.tflite")


def test_empty_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x.tflite").touch()
    with pytest.raises(TfliteError, match=r"x\.tflite: the file is empty; expected a \.tflite file"):
        tflite.load(tmp_path / "x.tflite")


def test_missing_file() -> None:
    with pytest.raises(FileNotFoundError):
        tflite.load("/nowhere/kws.tflite")


def test_truncated_file_is_rejected() -> None:
    """Files of every length: the cause of the error is an error of the reader or of the import."""
    data = small_model()
    tflite.parse(data)
    for length in range(len(data) - 1):
        _import_or_reject(data[:length])
    with pytest.raises(TfliteError, match=r"is damaged or truncated|is truncated") as caught:
        tflite.parse(data[: len(data) // 2])
    assert isinstance(caught.value.__cause__, TfliteError)


def test_cause_is_chained() -> None:
    with pytest.raises(TfliteError) as caught:
        tflite.parse(b"\xff\xff\0\0TFL3" + bytes(20))
    assert caught.value.__cause__ is not None
    assert isinstance(caught.value.__cause__.__cause__, InvalidFlatbuffer)


def test_file_with_changed_bytes_is_imported_or_rejected() -> None:
    """The import raises only TfliteError, for any change."""
    generator = random.Random(1)
    data = small_model()
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(generator.choice([1, 1, 8])):
            changed[generator.randrange(len(data))] = generator.choice([0, 1, 127, 128, 255, generator.randrange(256)])
        _import_or_reject(bytes(changed))


def _import_or_reject(data: bytes) -> Model | None:
    try:
        return tflite.parse(data)
    except TfliteError as error:
        assert str(error).startswith("model: ")
        return None


# ---- The package ----------------------------------------------------------------------------------------


def test_import_loads_neither_grpc_nor_litert() -> None:
    forbidden = ("grpc", "ai_edge_litert", "google.protobuf")
    code = f"import sys, nnhal.tflite; print([m for m in {forbidden} if m in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
