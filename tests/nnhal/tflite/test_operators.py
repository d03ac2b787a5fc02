"""Conversion of each TFLite operator to its NNAPI operation, with the arguments in order."""

from collections.abc import Sequence
from typing import Any

import pytest

from nnhal import tflite
from nnhal.types import Memory, OperandType
from tests.nnhal.tflite.build import Op, Tensor, arguments, build, ints, listing, options, quant, schema

IMAGE = (1, 4, 4, 2)


def f(*shape: int) -> Tensor:
    return Tensor(shape)


def const(*shape: int) -> Tensor:
    return Tensor(shape, data=[0.5] * _product(shape))


def of(type_: str, *shape: int) -> Tensor:
    return Tensor(shape, type_)


def scalar(value: float, type_: str = "INT32") -> Tensor:
    return Tensor((), type_, [value])


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def window(kind: str, **more: Any) -> Any:
    padding = more.pop("padding", schema.Padding.SAME)
    return options(kind, padding=padding, strideW=2, strideH=3, **more)


RELU6 = schema.ActivationFunctionType.RELU6

UNARY = [
    ("ABS", "ABS"),
    ("EXP", "EXP"),
    ("FLOOR", "FLOOR"),
    ("HARD_SWISH", "HARD_SWISH"),
    ("LOG", "LOG"),
    ("LOGISTIC", "LOGISTIC"),
    ("NEG", "NEG"),
    ("RELU", "RELU"),
    ("RELU6", "RELU6"),
    ("RELU_N1_TO_1", "RELU1"),
    ("RSQRT", "RSQRT"),
    ("SIN", "SIN"),
    ("SQRT", "SQRT"),
    ("TANH", "TANH"),
]

Case = tuple[str, Sequence[Tensor | None], Sequence[Tensor], Any, str]

CASES: list[Case] = [
    *((name, [f(2, 3)], [f(2, 3)], None, f"{ours} in0 -> out0") for name, ours in UNARY),
    *(
        (name, [f(2, 3), f(2, 3)], [of("BOOL", 2, 3)], None, f"{name} in0 in1 -> out0")
        for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    ),
    *(
        (name, [of("BOOL", 2), of("BOOL", 2)], [of("BOOL", 2)], None, f"{name} in0 in1 -> out0")
        for name in ("LOGICAL_AND", "LOGICAL_OR")
    ),
    ("LOGICAL_NOT", [of("BOOL", 2)], [of("BOOL", 2)], None, "LOGICAL_NOT in0 -> out0"),
    *(
        (name, [f(2, 3), f(3)], [f(2, 3)], None, f"{name} in0 in1 -> out0")
        for name in ("MAXIMUM", "MINIMUM", "POW", "PRELU")
    ),
    ("CAST", [f(2)], [of("INT32", 2)], options("Cast"), "CAST in0 -> out0"),
    # Arithmetic
    ("ADD", [f(2, 3), f(3)], [f(2, 3)], options("Add", fusedActivationFunction=RELU6), "ADD in0 in1 3 -> out0"),
    ("ADD", [f(2, 3), f(3)], [f(2, 3)], None, "ADD in0 in1 0 -> out0"),
    ("SUB", [f(2), f(2)], [f(2)], options("Sub", fusedActivationFunction=1), "SUB in0 in1 1 -> out0"),
    ("MUL", [f(2), f(2)], [f(2)], options("Mul", fusedActivationFunction=2), "MUL in0 in1 2 -> out0"),
    ("DIV", [f(2), f(2)], [f(2)], options("Div"), "DIV in0 in1 0 -> out0"),
    (
        "BATCH_MATMUL",
        [f(2, 3, 4), f(2, 5, 4)],
        [f(2, 3, 5)],
        options("BatchMatMul", adjY=True),
        "BATCH_MATMUL in0 in1 False True -> out0",
    ),
    # Convolution and pooling
    (
        "CONV_2D",
        [f(*IMAGE), const(5, 3, 3, 2), const(5)],
        [f(1, 2, 2, 5)],
        window("Conv2D", fusedActivationFunction=RELU6),
        "CONV_2D in0 const const 1 2 3 3 -> out0",
    ),
    (
        "CONV_2D",
        [f(*IMAGE), const(5, 1, 1, 2), const(5)],
        [f(1, 2, 2, 5)],
        window("Conv2D", padding=schema.Padding.VALID, dilationWFactor=4, dilationHFactor=5),
        "CONV_2D in0 const const 2 2 3 0 False 4 5 -> out0",
    ),
    (
        "CONV_2D",
        [f(*IMAGE), const(6, 3, 3, 1), const(6)],
        [f(1, 2, 2, 6)],
        window("Conv2D"),
        "GROUPED_CONV_2D in0 const const 1 2 3 2 0 False -> out0",
    ),
    (
        "DEPTHWISE_CONV_2D",
        [f(*IMAGE), const(1, 3, 3, 6), const(6)],
        [f(1, 2, 2, 6)],
        window("DepthwiseConv2D", fusedActivationFunction=1),
        "DEPTHWISE_CONV_2D in0 const const 1 2 3 3 1 -> out0",
    ),
    (
        "DEPTHWISE_CONV_2D",
        [f(*IMAGE), const(1, 3, 3, 2), const(2)],
        [f(1, 2, 2, 2)],
        window("DepthwiseConv2D", depthMultiplier=1, dilationWFactor=4, dilationHFactor=5),
        "DEPTHWISE_CONV_2D in0 const const 1 2 3 1 0 False 4 5 -> out0",
    ),
    (
        "TRANSPOSE_CONV",
        [ints(1, 8, 12, 5), const(5, 3, 3, 2), f(*IMAGE), const(5)],
        [f(1, 8, 12, 5)],
        window("TransposeConv"),
        "TRANSPOSE_CONV_2D in0 const const [1,8,12,5] 1 2 3 0 False -> out0",
    ),
    *(
        (
            name,
            [f(*IMAGE)],
            [f(1, 2, 2, 2)],
            window("Pool2D", filterWidth=4, filterHeight=5, fusedActivationFunction=1),
            f"{name} in0 1 2 3 4 5 1 -> out0",
        )
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
    ),
    # Matrices and activations
    (
        "FULLY_CONNECTED",
        [f(2, 3), const(4, 3), const(4)],
        [f(2, 4)],
        options("FullyConnected", fusedActivationFunction=1),
        "FULLY_CONNECTED in0 const const 1 -> out0",
    ),
    ("SOFTMAX", [f(2, 3)], [f(2, 3)], options("Softmax", beta=2.5), "SOFTMAX in0 2.5 -> out0"),
    ("LOG_SOFTMAX", [f(2, 3)], [f(2, 3)], None, "LOG_SOFTMAX in0 1.0 -1 -> out0"),
    ("ELU", [f(2, 3)], [f(2, 3)], None, "ELU in0 1.0 -> out0"),
    ("L2_NORMALIZATION", [f(2, 3)], [f(2, 3)], options("L2Norm"), "L2_NORMALIZATION in0 -> out0"),
    (
        "LOCAL_RESPONSE_NORMALIZATION",
        [f(*IMAGE)],
        [f(*IMAGE)],
        options("LocalResponseNormalization", radius=5, bias=2.0, alpha=0.25, beta=0.5),
        "LOCAL_RESPONSE_NORMALIZATION in0 5 2.0 0.25 0.5 -> out0",
    ),
    # Quantization
    ("QUANTIZE", [f(2)], [quant((2,))], None, "QUANTIZE in0 -> out0"),
    ("DEQUANTIZE", [quant((2,))], [f(2)], None, "DEQUANTIZE in0 -> out0"),
    ("DEQUANTIZE", [of("FLOAT16", 2)], [f(2)], None, "CAST in0 -> out0"),
    # Shapes
    ("RESHAPE", [f(2, 3), ints(3, 2)], [f(3, 2)], options("Reshape", newShape=[6]), "RESHAPE in0 [3,2] -> out0"),
    ("RESHAPE", [f(2, 3)], [f(3, 2)], options("Reshape", newShape=[3, -1]), "RESHAPE in0 [3,-1] -> out0"),
    ("RESHAPE", [f(2, 3), of("INT32", 2)], [f(3, 2)], None, "RESHAPE in0 in1 -> out0"),
    ("RESHAPE", [f(1, 1), None], [f()], options("Reshape"), "RESHAPE in0 [1] -> out0"),
    ("SQUEEZE", [f(1, 2, 1)], [f(1, 2)], options("Squeeze", squeezeDims=[-1]), "SQUEEZE in0 [2] -> out0"),
    ("SQUEEZE", [f(1, 2, 1)], [f(2)], options("Squeeze"), "SQUEEZE in0 none -> out0"),
    ("EXPAND_DIMS", [f(2, 3), scalar(-1)], [f(2, 3, 1)], None, "EXPAND_DIMS in0 2 -> out0"),
    ("TRANSPOSE", [f(2, 3), ints(1, 0)], [f(3, 2)], None, "TRANSPOSE in0 [1,0] -> out0"),
    # Choosing and joining
    (
        "CONCATENATION",
        [f(2, 3), f(2, 4)],
        [f(2, 7)],
        options("Concatenation", axis=-1),
        "CONCATENATION in0 in1 1 -> out0",
    ),
    ("PACK", [f(2), f(2)], [f(2, 2)], options("Pack", axis=-1, valuesCount=2), "PACK 1 in0 in1 -> out0"),
    ("SPLIT", [scalar(-1), f(2, 4)], [f(2, 2), f(2, 2)], options("Split", numSplits=2), "SPLIT in0 1 2 -> out0 out1"),
    ("GATHER", [f(2, 3), of("INT32", 4)], [f(2, 4)], options("Gather", axis=-1), "GATHER in0 1 in1 -> out0"),
    ("SELECT", [of("BOOL", 2), f(2), f(2)], [f(2)], None, "SELECT in0 in1 in2 -> out0"),
    ("SELECT_V2", [of("BOOL", 2), f(2), f(2)], [f(2)], None, "SELECT in0 in1 in2 -> out0"),
    ("SLICE", [f(4), ints(1), ints(2)], [f(2)], None, "SLICE in0 [1] [2] -> out0"),
    (
        "STRIDED_SLICE",
        [f(4), ints(1), ints(3), ints(2)],
        [f(1)],
        options("StridedSlice"),
        "STRIDED_SLICE in0 [1] [3] [2] 0 0 0 -> out0",
    ),
    ("TILE", [f(2), ints(3)], [f(6)], None, "TILE in0 [3] -> out0"),
    ("REVERSE_V2", [f(2, 4), ints(1)], [f(2, 4)], None, "REVERSE in0 [1] -> out0"),
    ("EMBEDDING_LOOKUP", [of("INT32", 2), f(5, 3)], [f(2, 3)], None, "EMBEDDING_LOOKUP in0 in1 -> out0"),
    (
        "HASHTABLE_LOOKUP",
        [of("INT32", 2), of("INT32", 5), f(5, 3)],
        [f(2, 3), of("UINT8", 2)],
        None,
        "HASHTABLE_LOOKUP in0 in1 in2 -> out0 out1",
    ),
    # Reductions
    *(
        (name, [f(2, 3), ints(-1)], [f(2, 1)], options("Reducer", keepDims=True), f"{ours} in0 [1] True -> out0")
        for name, ours in (
            ("SUM", "REDUCE_SUM"),
            ("REDUCE_MAX", "REDUCE_MAX"),
            ("REDUCE_MIN", "REDUCE_MIN"),
            ("REDUCE_PROD", "REDUCE_PROD"),
        )
    ),
    ("REDUCE_ALL", [of("BOOL", 2), ints(0)], [of("BOOL")], None, "REDUCE_ALL in0 [0] False -> out0"),
    ("REDUCE_ANY", [of("BOOL", 2), ints(0)], [of("BOOL")], None, "REDUCE_ANY in0 [0] False -> out0"),
    ("MEAN", [f(*IMAGE), ints(1, 2)], [f(1, 1, 1, 2)], options("Reducer", keepDims=True), "MEAN in0 [1,2] 1 -> out0"),
    ("ARG_MAX", [f(2, 3), scalar(-1)], [of("INT64", 2)], options("ArgMax"), "ARGMAX in0 1 -> out0"),
    ("ARG_MIN", [f(2, 3), scalar(0, "INT64")], [of("INT32", 3)], options("ArgMin"), "ARGMIN in0 0 -> out0"),
    # Space
    (
        "RESIZE_BILINEAR",
        [f(*IMAGE), ints(8, 12)],
        [f(1, 8, 12, 2)],
        options("ResizeBilinear", alignCorners=True),
        "RESIZE_BILINEAR in0 12 8 False True False -> out0",
    ),
    (
        "RESIZE_NEAREST_NEIGHBOR",
        [f(*IMAGE), ints(8, 12)],
        [f(1, 8, 12, 2)],
        options("ResizeNearestNeighbor", halfPixelCenters=True),
        "RESIZE_NEAREST_NEIGHBOR in0 12 8 False False True -> out0",
    ),
    (
        "SPACE_TO_DEPTH",
        [f(*IMAGE)],
        [f(1, 2, 2, 8)],
        options("SpaceToDepth", blockSize=2),
        "SPACE_TO_DEPTH in0 2 -> out0",
    ),
    (
        "DEPTH_TO_SPACE",
        [f(1, 2, 2, 8)],
        [f(*IMAGE)],
        options("DepthToSpace", blockSize=2),
        "DEPTH_TO_SPACE in0 2 -> out0",
    ),
    (
        "BATCH_TO_SPACE_ND",
        [f(4, 2, 2, 1), ints(2, 2), Tensor((2, 2), "INT32", [0] * 4)],
        [f(1, 4, 4, 1)],
        None,
        "BATCH_TO_SPACE_ND in0 [2,2] -> out0",
    ),
    (
        "SPACE_TO_BATCH_ND",
        [f(1, 4, 4, 1), ints(2, 2), Tensor((2, 2), "INT32", [0] * 4)],
        [f(4, 2, 2, 1)],
        None,
        "SPACE_TO_BATCH_ND in0 [2,2] [[0,0],[0,0]] -> out0",
    ),
    ("PAD", [f(2), Tensor((1, 2), "INT32", [1, 2])], [f(5)], None, "PAD in0 [[1,2]] -> out0"),
    ("PAD", [f(2), Tensor((1, 2), "INT64", [1, 2])], [f(5)], None, "PAD in0 [[1,2]] -> out0"),
    (
        "PADV2",
        [f(2), Tensor((1, 2), "INT32", [1, 2]), scalar(0.5, "FLOAT32")],
        [f(5)],
        None,
        "PAD_V2 in0 [[1,2]] 0.5 -> out0",
    ),
    (
        "PADV2",
        [quant((2,)), Tensor((1, 2), "INT32", [1, 2]), Tensor((), "UINT8", [7], (0.5,), (3,))],
        [quant((5,))],
        None,
        "PAD_V2 in0 [[1,2]] 7 -> out0",
    ),
    (
        "MIRROR_PAD",
        [f(2), Tensor((1, 2), "INT32", [1, 1])],
        [f(4)],
        options("MirrorPad", mode=1),
        "MIRROR_PAD in0 [[1,1]] 1 -> out0",
    ),
    ("FILL", [of("INT32", 2), scalar(0.5, "FLOAT32")], [f(2, 3)], None, "FILL in0 0.5 -> out0"),
    ("FILL", [of("INT32", 2), scalar(7)], [of("INT32", 2, 3)], None, "FILL in0 7 -> out0"),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_conversion(case: Case) -> None:
    name, inputs, outputs, table, expected = case
    assert listing(tflite.parse(build(Op(name, inputs, outputs, table)))) == [expected]


def test_every_converter_has_a_case_or_models_in_the_corpus() -> None:
    from nnhal.tflite.operators import CONVERTERS
    from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
    from tests.nnhal.tflite.corpus.cases import GENERATORS

    covered = {getattr(schema.BuiltinOperator, name) for name in (*GENERATORS, *(case[0] for case in CASES))}
    tables = ("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE")
    several_operators = {getattr(schema.BuiltinOperator, name) for name in ("IF", "WHILE", *tables)}
    assert set(CONVERTERS) - covered - several_operators == set()


def test_scalars_have_the_types_of_the_documentation() -> None:
    def types(*case: Any) -> list[OperandType]:
        return [OperandType(operand.type) for operand in arguments(tflite.parse(build(Op(*case))))]

    size = ints(8, 12)
    image, result = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT32
    int32, flag = OperandType.INT32, OperandType.BOOL
    case = ("RESIZE_BILINEAR", [f(*IMAGE), size], [f(1, 8, 12, 2)], None)
    assert types(*case) == [image, int32, int32, flag, flag, flag, result]
    half = of("FLOAT16", 2, 3)
    assert types("SOFTMAX", [half], [of("FLOAT16", 2, 3)], options("Softmax", beta=1.0)) == [
        OperandType.TENSOR_FLOAT16,
        OperandType.FLOAT16,
        OperandType.TENSOR_FLOAT16,
    ]
    assert types("FILL", [of("INT32", 1), scalar(0.5, "FLOAT32")], [f(2)])[1] == OperandType.FLOAT32


@pytest.mark.parametrize("shared", [False, True])
def test_scale_of_depthwise_weights_is_repeated_for_each_channel(shared: bool) -> None:
    """LiteRT reads as many if the image is float32. Another operator may use the same weights."""

    def region(scale: tuple[float, ...]) -> bytes:
        weights = Tensor((1, 2, 2, 3), "INT8", range(12), scale, (0,) * len(scale), 3 if len(scale) > 1 else 0)
        window = options("DepthwiseConv2D", strideW=1, strideH=1, depthMultiplier=1)
        image, bias, result = Tensor((1, 4, 4, 3)), const(3), Tensor((1, 4, 4, 3))
        more = [Op("DEPTHWISE_CONV_2D", [result, weights, bias], [Tensor((1, 4, 4, 3))], window)] if shared else []
        file = build(Op("DEPTHWISE_CONV_2D", [image, weights, bias], [result], window), *more)
        (pool,) = tflite.parse(file).pools
        assert isinstance(pool, Memory)
        return bytes(pool.view)

    assert region((0.5,)) == region((0.5, 0.5, 0.5))
    assert region((0.5,)) != region((0.5, 0.5, 0.25))
