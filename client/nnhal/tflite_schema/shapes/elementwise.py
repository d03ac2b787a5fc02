"""Shapes of operators on single elements: like an input, or broadcast."""

from nnhal.tflite_schema.shapes.rule import ShapeCall, Shapes, broadcast_shapes, shapes

_UNARY = (
    "ABS BUCKETIZE CAST CEIL COMPLEX_ABS COS CUMSUM DENSIFY DEQUANTIZE DYNAMIC_UPDATE_SLICE ELU EXP FAKE_QUANT FLOOR "
    "GELU HARD_SWISH IMAG L2_NORMALIZATION LEAKY_RELU LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_NOT LOGISTIC "
    "LOG_SOFTMAX MATRIX_DIAG MATRIX_SET_DIAG NEG QUANTIZE REAL RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 REVERSE_SEQUENCE "
    "REVERSE_V2 ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH ZEROS_LIKE ADD_N "
    "STABLEHLO_ADD STABLEHLO_AND STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_MULTIPLY STABLEHLO_SCATTER "
    "STABLEHLO_SHIFT_LEFT"
)
_BINARY = (
    "ADD ATAN2 BITWISE_XOR DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR "
    "MAXIMUM MINIMUM MUL NOT_EQUAL POW PRELU RIGHT_SHIFT SELECT_V2 SQUARED_DIFFERENCE SUB"
)


@shapes("CUSTOM NumericVerify", *_UNARY.split())
def like_input(call: ShapeCall) -> Shapes:
    """Infer the shape of the first input. MATRIX_DIAG adds a dimension."""
    shape = call.shape(0)
    return [(*shape, shape[-1])] if call.name == "MATRIX_DIAG" else [shape]


@shapes(*_BINARY.split())
def broadcast(call: ShapeCall) -> Shapes:
    """Infer the broadcast of all inputs."""
    return [broadcast_shapes(*call.shapes())]


@shapes("SELECT")
def select(call: ShapeCall) -> Shapes:
    """Infer the shape of the two alternatives: the condition may have fewer dimensions."""
    return [call.shape(1)]
