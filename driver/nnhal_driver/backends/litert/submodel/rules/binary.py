"""Elementwise operators of two inputs, and of many."""

import math
from collections.abc import Sequence

import numpy as np

from nnhal_driver.backends.litert.submodel.operator_check import (
    OperatorCheck,
    quantization_key,
    rule,
    scale,
    zero_point,
)

_POWER_TOLERANCE = 0.01
_INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT32")


def _scales(op: OperatorCheck) -> Sequence[float]:
    return [scale(op.input(0)), scale(op.input(1)), scale(op.outputs[0])]


def _is_power_of_two(value: float) -> bool:
    """Return whether kernels take a scale for a power of two."""
    logarithm = math.log2(value)
    return abs(logarithm - round(logarithm)) < _POWER_TOLERANCE


@rule("ADD", types=["T:f32|f16|i8|u8|i16|i32|i64 T -> T"], options="AddOptions")
@rule("SUB", types=["T:f32|f16|i8|u8|i16|i32|i64 T -> T"], options="SubOptions")
def add(op: OperatorCheck) -> None:
    """Check an addition.

    The kernel aborts if the largest input scale is too large for the output's, and if scales that are powers of two
    broadcast.
    """
    op.activation()
    if op.input(0).type == "INT16" and op.option("pot_scale_int16") and all(map(_is_power_of_two, _scales(op))):
        op.input_shape(1, op.input(0).shape)
    if op.is_quantized:
        first, second, output = _scales(op)
        op.multiplier("largest input scale / output scale", max(first, second) / output, 2.0**-10, 2.0**13)
        op.multiplier("ratio of the input scales", first / second, 2.0**-20, 2.0**20)


@rule("MUL", types=["T:f32|f16|i8|u8|i16|i32|i64 T -> T"], options="MulOptions")
def multiply(op: OperatorCheck) -> None:
    """Check a multiplication."""
    op.activation()
    if op.is_quantized:
        first, second, output = _scales(op)
        op.multiplier("product of the input scales / output scale", first * second / output, high=2.0**8)


@rule("DIV", types=["T:f32|f16|i8|u8|i32 T -> T"], options="DivOptions")
@rule("FLOOR_DIV", types=["T:f32|i8|i16|i32 T -> T"], options="FloorDivOptions", optional_options=True, quantized=False)
@rule(
    "FLOOR_MOD",
    types=["T:f32|i8|i16|i32|i64 T -> T"],
    options="FloorModOptions",
    optional_options=True,
    quantized=False,
)
def divide(op: OperatorCheck) -> None:
    """Check a division. An integer division by 0, or of the lowest number by -1, ends the process."""
    if op.operator.name == "DIV":
        op.activation()
    if op.operator.name == "DIV" and op.is_quantized:
        first, second, output = _scales(op)
        op.multiplier("ratio of the input scales / output scale", first / second / output, 2.0**-20, 2.0**8)
        divisor = op.constant(1)
        op.require((divisor != zero_point(op.input(1))).all(), "input 1 contains a value that means 0")
    elif op.input(0).type in _INTEGERS:
        divisor = op.constant(1)
        if ((divisor == 0) | (divisor == -1)).any():
            op.fail("input 1 contains 0 or -1; integers cannot be divided by them")


@rule(
    "MAXIMUM",
    "MINIMUM",
    quantized=False,
    types=["T:f32|f16|i8|u8|i16|i32|i64 T -> T"],
    options="MaximumMinimumOptions",
    optional_options=True,
)
def extremum(op: OperatorCheck) -> None:
    """Accept the larger or smaller of two values, which are compared as they are stored."""


@rule("POW", types=["T:f32|i32 T -> T"], options="PowOptions", optional_options=True)
@rule("ATAN2", types=["T:f32|f64 T -> T"], options="ATan2Options", optional_options=True)
@rule("LOGICAL_AND", types=["bool bool -> bool"], options="LogicalAndOptions", optional_options=True)
@rule("LOGICAL_OR", types=["bool bool -> bool"], options="LogicalOrOptions", optional_options=True)
@rule("BITWISE_XOR", types=["T:i8|u8|i16|u16|i32|u32|bool T -> T"], options="BitwiseXorOptions", quantized=False)
def binary(op: OperatorCheck) -> None:
    """Check an operator that computes any two values."""
    if op.operator.name == "ATAN2":  # the kernel gives its result the shape of input 0
        op.input_shape(1, op.input(0).shape)


@rule(
    "SQUARED_DIFFERENCE", types=["T:f32|f16|i8|i32 T -> T"], options="SquaredDifferenceOptions", optional_options=True
)
def squared_difference(op: OperatorCheck) -> None:
    """Check a squared difference. The kernel aborts if the scales are too far apart."""
    if op.is_quantized:
        first, second, output = _scales(op)
        larger = max(first, second)
        op.multiplier("ratio of the input scales", first / second, 2.0**-20, 2.0**20)
        op.multiplier("square of the largest input scale / output scale", larger * larger / output, 2.0**-20, 2.0**8)


@rule("EQUAL", types=["T:f32|f16|i8|u8|i16|i32|i64|bool T -> bool"], options="EqualOptions", optional_options=True)
@rule(
    "NOT_EQUAL", types=["T:f32|f16|i8|u8|i16|i32|i64|bool T -> bool"], options="NotEqualOptions", optional_options=True
)
@rule("LESS", types=["T:f32|f16|i8|u8|i16|i32|i64 T -> bool"], options="LessOptions", optional_options=True)
@rule("LESS_EQUAL", types=["T:f32|f16|i8|u8|i16|i32|i64 T -> bool"], options="LessEqualOptions", optional_options=True)
@rule("GREATER", types=["T:f32|f16|i8|u8|i16|i32|i64 T -> bool"], options="GreaterOptions", optional_options=True)
@rule(
    "GREATER_EQUAL",
    types=["T:f32|f16|i8|u8|i16|i32|i64 T -> bool"],
    options="GreaterEqualOptions",
    optional_options=True,
)
def compare(op: OperatorCheck) -> None:
    """Check a comparison. The kernel aborts if the quantization differs and a scale is not less than 1."""
    if op.is_quantized:
        first, second = (quantization_key(op.input(index)) for index in (0, 1))
        for index in (0, 1):
            highest = 2.0**8 if first == second else 1 - 2.0**-24
            op.multiplier(f"scale of input {index}", scale(op.input(index)), high=highest)


@rule("PRELU", types=["T:f32|f16|i8|u8|i16 T -> T"])
def prelu(op: OperatorCheck) -> None:
    """Check an activation with a slope for each element or channel."""
    op.output_shape(op.input(0).shape)
    if op.is_quantized:
        first, alpha, output = _scales(op)
        op.multiplier("input scale / output scale", first / output, high=2.0**8)
        op.multiplier("product of the input scales / output scale", first * alpha / output, high=2.0**8)


@rule("RIGHT_SHIFT", types=["T:i8|u8|i16|u16|i32|u32 T -> T"], options="RightShiftOptions", quantized=False)
def right_shift(op: OperatorCheck) -> None:
    """Check a shift, whose distance must be less than the number of bits."""
    distances = op.constant(1)
    bits = np.dtype(distances.dtype).itemsize * 8
    if (distances < 0).any() or (distances >= bits).any():
        op.fail(f"input 1 contains a distance out of the range 0 to {bits - 1}")


@rule("ADD_N", types=["T:f32|i32 T* -> T"], options="AddNOptions", optional_options=True)
def add_n(op: OperatorCheck) -> None:
    """Check a sum of tensors of one shape."""
    for index in range(1, len(op.inputs)):
        op.input_shape(index, op.input(0).shape)


@rule(
    "SELECT",
    types=["bool T:f32|f16|i8|u8|i16|u32|i32|i64|bool T -> T"],
    options="SelectOptions",
    quantized=False,
    optional_options=True,
)
def select(op: OperatorCheck) -> None:
    """Check a selection between two tensors of one shape; the condition has the shape, or one element per row."""
    condition, shape = op.input(0).shape, op.input(1).shape
    op.input_shape(2, shape)
    op.require(
        condition == shape or (len(condition) == 1 and shape and condition[0] == shape[0]) or not condition,
        f"input 0 has shape {list(condition)}; expected {list(shape)} or {list(shape[:1])}",
    )


@rule(
    "SELECT_V2",
    types=["bool T:f32|f16|i8|u8|i16|u32|i32|i64|bool T -> T"],
    options="SelectV2Options",
    quantized=False,
    optional_options=True,
)
def select_v2(op: OperatorCheck) -> None:
    """Accept a selection between tensors that broadcast."""
