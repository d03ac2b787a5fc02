"""GraphBuilder: errors name the argument and the rule."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nnhal import ModelBuilder
from nnhal.builder import OperandRef
from nnhal.types import (
    Operand,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.nnhal.builder.models import F32, QUANT, adding, assert_rejected

CONV = np.zeros((4, 1, 1, 1), np.float32)
BIAS = np.zeros(4, np.float32)
MAPS = Operand(F32, (1, 8, 8, 4))
ARGUMENT_CASES: list[tuple[str, str, Callable[[ModelBuilder, OperandRef], object]]] = [
    (
        "V-OPERATION-04",
        r"operation 0 of main \(CONV_2D\): has 2 inputs; it takes 7, 8, 10, 11 or 13: inputs explicit padding: "
        r"\(input, filter, bias, .*activation \[layout\] \[dilation_width, dilation_height\]\) or implicit",
        lambda b, x: b.add(Op.CONV_2D, x, CONV, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        r"\(SPLIT\): has 0 outputs; it has 1 or more: .* outputs \(output\.\.\.\)",
        lambda b, x: b.add(Op.SPLIT, x, 0, 1, outputs=[]),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(filter\) is TENSOR_FLOAT16, not TENSOR_FLOAT32 \(with input TENSOR_FLOAT32.*; "
        r"given input = image \(TENSOR_FLOAT32 \[1, 8, 8, 1\]\), filter = operand \d \(TENSOR_FLOAT16",
        lambda b, x: b.add(Op.CONV_2D, x, b.constant(CONV.astype(np.float16)), BIAS, 1, 1, 1, 0, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        r"output 0 \(output\) is TENSOR_INT32, not TENSOR_FLOAT32",
        lambda b, x: b.add(Op.RELU, x, output=Operand(T.TENSOR_INT32, (1,))),
    ),
    (
        "V-OPERATION-04",
        "filter has rank 3; it must be 4; given",
        lambda b, x: b.add(Op.CONV_2D, x, CONV[0], BIAS, 1, 1, 1, 0, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        "paddings has 2 rows; input has rank 4; given input = image",
        lambda b, x: b.add(Op.MIRROR_PAD, x, [[0, 0], [1, 1]], 0, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(beta\) is BOOL, not FLOAT32 .*; given input = image .*, beta = True",
        lambda b, x: b.add(Op.SOFTMAX, x, True, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 2 \(axis\) is FLOAT32, not INT32 .*axis = 1\.5",
        lambda b, x: b.add(Op.SOFTMAX, x, 1, 1.5, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(shape\) is INT32, not TENSOR_INT32",
        lambda b, x: b.add(Op.RESHAPE, x, 64, output=Operand(F32, (64,))),
    ),
    (
        "V-OPERATION-04",
        r"input 2 \(axis\) is 1099511627776, which INT32 cannot hold",
        lambda b, x: b.add(Op.SOFTMAX, x, 1, 2**40, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(beta\) is 1e\+60, which FLOAT32 cannot hold",
        lambda b, x: b.add(Op.SOFTMAX, x, 1e60, output=x.description),
    ),
    (
        "V-OPERATION-04",
        r"input 2 \(bias\) is None, but may not be omitted: it is a TENSOR_FLOAT32",
        lambda b, x: b.add(Op.CONV_2D, x, CONV, None, 1, 1, 1, 0, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(filter\) is an array of float64 \[4, 1, 1, 1\], not TENSOR_FLOAT32: .* astype\(np\.float32\)",
        lambda b, x: b.add(Op.CONV_2D, x, CONV.astype(np.float64), BIAS, 1, 1, 1, 0, output=MAPS),
    ),
    (
        "V-OPERATION-04",
        r"input 1 \(input1\) is an array of uint8 \[2\], .*TENSOR_QUANT8_ASYMM.*constant\(array, type, scale=\.\.\.\)",
        lambda b, x: b.add(
            Op.ADD,
            b.constant([1, 2], T.TENSOR_QUANT8_ASYMM, scale=1),
            np.array([1, 2], np.uint8),
            0,
            output=replace(QUANT),
        ),
    ),
    (
        "",
        "input 1 is a str; expected an operand, a number, an array, a sequence of numbers or None",
        lambda b, x: b.add(Op.RELU, x, "alpha", output=x.description),
    ),
    ("", "input 0 cannot be converted to an array", lambda b, x: b.add(Op.RELU, [[1], [1, 2]], output=x.description)),
    (
        "V-OPERAND-04",
        r"input 1 \(TENSOR_INT32\) is a constant with dimension 0 of 0, must be > 0",
        lambda b, x: b.add(Op.MEAN, x, np.zeros(0, np.int32), 0, output=x.description),
    ),
    (
        "V-OPERAND-09",
        r"\(DEQUANTIZE\): output 0 \(TENSOR_QUANT8_SYMM\) has scale 0\.0, must be > 0",
        lambda b, x: b.add(Op.DEQUANTIZE, x, output=Operand(T.TENSOR_QUANT8_SYMM, (2,))),
    ),
    (
        "V-OPERATION-01",
        "there is no such type: types are 0 to 105",
        lambda b, x: b.add(106, x, output=x.description),
    ),
    (
        "V-EXT-08",
        "has type 0x10001, but the model has no extension of prefix 1",
        lambda b, x: b.add(0x10001, x, output=x.description),
    ),
    ("V-EXT-08", "operand type 0x10001, but", lambda b, x: b.input(0x10001)),
    (
        "",
        "input 1 is None, whose type is not known",
        lambda b, x: b.add(b.extension("a.b").operation_type(1), x, None, output=x.description),
    ),
    (
        "",
        "input 0 is an array of float64",
        lambda b, x: b.add(b.extension("a.b").operation_type(1), np.zeros(2), output=x.description),
    ),
    ("V-EXT-01", "must consist of a-z, 0-9, '.' and '_'", lambda b, x: b.extension("org.Example")),
    ("V-EXT-02", "must contain a period", lambda b, x: b.extension("example")),
    ("", "ids are 0 to 65535", lambda b, x: b.extension("a.b").operation_type(65536)),
    (
        "",
        r"input 1 is y \(TENSOR_FLOAT32 \[2\]\) of another model's builder",
        lambda b, x: b.add(Op.ADD, x, ModelBuilder().input(F32, [2], name="y"), 0, output=x.description),
    ),
    ("", "another model's builder", lambda b, x: b.output(ModelBuilder().input(F32, [2]))),
    (
        "",
        r"input 0 is image \(TENSOR_FLOAT32 .*\) of main; subgraphs share nothing",
        lambda b, x: b.subgraph().add(Op.RELU, x, output=x.description),
    ),
    ("", "the name is taken already", lambda b, x: b.input(F32, [2], name="image")),
    ("", "referenced subgraph 0 is complete", lambda b, x: adding(b, 1).input(F32)),
    ("", "referenced subgraph 0 is complete", lambda b, x: adding(b, 1).constant(1)),
    ("", "referenced subgraph 0 is complete", lambda b, x: adding(b, 1).add(Op.RELU, x, output=x.description)),
    (
        "V-SUBGRAPH-05",
        "image .* of lifetime SUBGRAPH_INPUT; expected the output of an operation",
        lambda b, x: b.output(x),
    ),
    (
        "V-SUBGRAPH-05",
        "of lifetime CONSTANT_COPY; expected the output of an operation",
        lambda b, x: b.output(b.constant(1)),
    ),
    ("V-SUBGRAPH-02", "main has no operations", lambda b, x: b.build()),
]


@pytest.mark.parametrize(("rule", "complaint", "build"), ARGUMENT_CASES)
def test_invalid_argument_is_rejected(
    rule: str, complaint: str, build: Callable[[ModelBuilder, OperandRef], object]
) -> None:
    b = ModelBuilder()
    x = b.input(F32, [1, 8, 8, 1], name="image")
    assert_rejected(lambda: build(b, x), rule, complaint)
