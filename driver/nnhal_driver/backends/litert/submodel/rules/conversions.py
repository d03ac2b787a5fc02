"""Operators that convert between types."""

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, rule, scale

_CAST = "f32|f64|f16|i8|u8|i16|u16|i32|u32|i64|bool"


@rule(
    "CAST", types=[f"{_CAST} -> {_CAST}", "c64 -> f32"], options="CastOptions", optional_options=True, quantized=False
)
def cast_(op: OperatorCheck) -> None:
    """Accept a conversion of numbers, which takes the types of the tensors and ignores its options."""


@rule("COMPLEX_ABS", "REAL", "IMAG", types=["c64 -> f32"])
def part(op: OperatorCheck) -> None:
    """Accept the magnitude or a part of complex numbers."""


@rule(
    "QUANTIZE",
    types=["f32 -> i8|u8|i16|i32", "f16 -> i8|u8", "i8|u8|i16|i32 -> i8|u8|i16|i32"],
    options="QuantizeOptions",
    optional_options=True,
)
def quantize(op: OperatorCheck) -> None:
    """Check a conversion to quantized values."""
    tensor, result = op.input(0), op.outputs[0]
    op.require(result.quantization is not None, "output 0 has no scale")
    if not tensor.type.startswith("FLOAT"):
        op.require(tensor.quantization is not None, "input 0 has no scale")
        op.multiplier("input scale / output scale", scale(tensor) / scale(result))


@rule("DEQUANTIZE", types=["i8|u8|i16|f16 -> f32"], options="DequantizeOptions", optional_options=True, per_channel=[0])
def dequantize(op: OperatorCheck) -> None:
    """Accept a conversion to real values."""


@rule("FAKE_QUANT", types=["f32 -> f32"], options="FakeQuantOptions")
def fake_quantize(op: OperatorCheck) -> None:
    """Check a rounding to quantized values."""
    op.require_range("num_bits", op.option("num_bits"), 2, 16)
    low, high = op.float_option("min"), op.float_option("max")
    op.require(low < high, f"min is {low} and max is {high}; expected min <= 0 <= max, and min < max")
