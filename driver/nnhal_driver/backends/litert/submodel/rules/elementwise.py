"""Elementwise operators of one input."""

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, rule, scale


def _check_scales(op: OperatorCheck) -> None:
    """Check the ratio of the scales of input and output."""
    if op.is_quantized and op.input(0).quantization is not None:
        op.multiplier("input scale / output scale", scale(op.input(0)) / scale(op.outputs[0]))


@rule("CEIL", "FLOOR", "ROUND", "SIN", types=["T:f32|f16 -> T"])
@rule("COS", types=["T:f32|f16 -> T"], options="CosOptions", optional_options=True)
@rule("SQUARE", types=["T:f32|f16 -> T"], options="SquareOptions", optional_options=True)
@rule("ABS", types=["T:f32|f16|i8|i16|i32 -> T"], options="AbsOptions", optional_options=True)
@rule("EXP", types=["T:f32|f16|i8|i16 -> T"], options="ExpOptions", optional_options=True)
@rule("NEG", types=["T:f32|f16|i8|i16|i32|i64 -> T"], options="NegOptions", optional_options=True)
@rule("LOGICAL_NOT", types=["bool -> bool"], options="LogicalNotOptions", optional_options=True)
@rule("SIGN", types=["T:f32|f64|i32 -> T"], options="SignOptions", optional_options=True)
@rule("ZEROS_LIKE", types=["T:f32|i32|i64 -> T"], options="ZerosLikeOptions", optional_options=True)
@rule("HARD_SWISH", types=["T:f32|f16|i8|u8 -> T"], options="HardSwishOptions", optional_options=True)
@rule("LOG", "SQRT", "RSQRT", types=["T:f32|f16|i8|i16 -> T"])
@rule("ELU", types=["T:f32|f16|i8 -> T"])
@rule("RELU", types=["T:f32|f16|i8|u8|i16 -> T"])
@rule("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", types=["T:f32|f16|i8|u8|i16 -> T"])
@rule("LOGISTIC", "TANH", types=["T:f32|f16|i8|u8|i16 -> T"])
def elementwise(op: OperatorCheck) -> None:
    """Check an operator that has no options that matter."""
    _check_scales(op)


@rule("GELU", types=["T:f32|f16|i8|u8|i16 -> T"], options="GeluOptions", optional_options=True)
@rule("LEAKY_RELU", types=["T:f32|f16|i8|u8|i16 -> T"], options="LeakyReluOptions")
def with_options(op: OperatorCheck) -> None:
    """Check an activation with an option."""
    _check_scales(op)
    if op.operator.name == "LEAKY_RELU":
        op.require_range("alpha", op.float_option("alpha"), -(2.0**10), 2.0**10)
