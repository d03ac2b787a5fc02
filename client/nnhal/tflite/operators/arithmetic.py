"""Arithmetic of tensors, and rounding: ADD, FLOOR_DIV, MAXIMUM, SQUARED_DIFFERENCE, CEIL, ROUND, SIGN and others."""

from collections.abc import Sequence

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import ActivationFunctionType, BuiltinOperator
from nnhal.types import FusedActivationFunc, Operand, OperandType, OperationType

_INTEGER_ACTIVATIONS = {
    ActivationFunctionType.RELU: [(OperationType.MAXIMUM, 0)],
    ActivationFunctionType.RELU_N1_TO_1: [(OperationType.MAXIMUM, -1), (OperationType.MINIMUM, 1)],
    ActivationFunctionType.RELU6: [(OperationType.MAXIMUM, 0), (OperationType.MINIMUM, 6)],
}
_SHIFT = 1.5 * 2.0**23
"""Neighbors of this number are 1 apart: adding it rounds to an integer, half to even."""
_LIMIT = 2.0**22
"""From this magnitude on, adding `_SHIFT` would round to a multiple of 2. From twice of it on, all values are integers.

Values between them may keep a half, which is 1e-7 of them.
"""
_SUM_SCALES = 2.0**19 * (1 - 2.0**-32)
"""NNAPI's quantized ADD and SUB limit the inputs' scales to this multiple of the output's scale (V-RUN-03)."""
_MOST_ADDENDS = 6
"""Largest number of inputs of an ADD_N. Each one needs an ADD."""


@converter(BuiltinOperator.ADD, BuiltinOperator.SUB, BuiltinOperator.MUL, BuiltinOperator.DIV)
def arithmetic(call: OperatorCall) -> None:
    """Convert ADD, SUB, MUL and DIV."""
    inputs = [call.input(0), call.input(1)]
    if call.operator.code == BuiltinOperator.SUB:
        _require_scale_of_difference(call, *map(call.operand, inputs))
    if call.operand(inputs[0]).type == OperandType.TENSOR_INT32:
        _integer_arithmetic(call, inputs)
    else:
        call.emit(call.counterpart, [*inputs, call.activation()])


def _require_scale_of_difference(call: OperatorCall, first: Operand, second: Operand) -> None:
    """Raise TfliteError if NNAPI forbids the scale of the output, such as that of values that were always 0.

    LiteRT's ADD ends the process then, so that it does not belong into a region.
    """
    output = call.output()
    if output.scale and max(first.scale, second.scale) >= output.scale * _SUM_SCALES:
        raise TfliteError(f"the output's scale {output.scale:g} is too small for NNAPI beside those of the inputs")


def _integer_arithmetic(call: OperatorCall, inputs: Sequence[int]) -> None:
    """Emit operations on integers. NNAPI has no fused activation for them: MAXIMUM and MINIMUM replace it."""
    function = call.option("fused_activation_function", ActivationFunctionType.NONE)
    limits = _INTEGER_ACTIVATIONS.get(function, [])
    none = call.int32_scalar(FusedActivationFunc.NONE) if limits else call.activation()
    shape = call.known_output().dimensions
    first, second = inputs
    steps: list[tuple[OperationType, list[int], Sequence[int]]] = [(call.counterpart, [second, none], shape)]
    if call.operator.code == BuiltinOperator.DIV:
        steps.append((OperationType.MAXIMUM, [_negative_quotient(call, first, second, none)], shape))
    steps += [(limit_type, [call.int32_tensor([limit])], shape) for limit_type, limit in limits]
    call.chain(first, *steps)


def _negative_quotient(call: OperatorCall, dividend: int, divisor: int, none: int) -> int:
    """Return the quotient, rounded up, where it is negative, and 0 elsewhere.

    NNAPI rounds quotients down, TFLite toward zero: the maximum of both is TFLite's. The quotient rounded up is
    -floor(a / -b).
    """
    output, shape = call.output(), call.output().dimensions
    opposite = call.apply(OperationType.NEG, [divisor], output, call.operand(divisor).dimensions)
    floor = call.apply(OperationType.DIV, [dividend, opposite, none], output, shape)
    ceiling = call.apply(OperationType.NEG, [floor], output, shape)
    return call.apply(OperationType.MINIMUM, [ceiling, call.int32_tensor([0])], output, shape)


def _no_activation(call: OperatorCall) -> int:
    return call.int32_scalar(FusedActivationFunc.NONE)


@converter(BuiltinOperator.ADD_N)
def add_n(call: OperatorCall) -> None:
    """Convert ADD_N to ADDs, from the first input to the last."""
    if not 2 <= len(call.operator.inputs) <= _MOST_ADDENDS:
        raise TfliteError(f"has {len(call.operator.inputs)} inputs; 2 to {_MOST_ADDENDS} become a few ADDs")
    total, *rest = call.inputs()
    shape, none = call.known_output().dimensions, _no_activation(call)
    call.chain(total, *((OperationType.ADD, [addend, none], shape) for addend in rest))


@converter(BuiltinOperator.FLOOR_DIV)
def floor_div(call: OperatorCall) -> None:
    """Convert FLOOR_DIV. NNAPI's DIV rounds integers down; real quotients need FLOOR."""
    inputs, output = [*call.inputs(), _no_activation(call)], call.output()
    if output.type == OperandType.TENSOR_INT32:
        call.emit(OperationType.DIV, inputs)
    else:
        quotient = call.apply(OperationType.DIV, inputs, output, output.dimensions)
        call.emit(OperationType.FLOOR, [quotient])


@converter(BuiltinOperator.FLOOR_MOD)
def floor_mod(call: OperatorCall) -> None:
    """Convert FLOOR_MOD of integers to a - floor(a / b) * b."""
    output, none = call.output(), _no_activation(call)
    if output.type != OperandType.TENSOR_INT32:
        raise TfliteError("a - floor(a / b) * b loses precision on real numbers; NNAPI has no other way")
    dividend, divisor = call.input(0), call.input(1)
    quotient = call.apply(OperationType.DIV, [dividend, divisor, none], output, output.dimensions)
    product = call.apply(OperationType.MUL, [quotient, divisor, none], output, output.dimensions)
    call.emit(OperationType.SUB, [dividend, product, none])


@converter(BuiltinOperator.MAXIMUM, BuiltinOperator.MINIMUM)
def extremes(call: OperatorCall) -> None:
    """Convert MAXIMUM and MINIMUM. TFLite compares stored values, NNAPI the real ones."""
    call.require_same_quantization("TFLite compares stored values")
    call.emit(call.counterpart, call.inputs())


@converter(BuiltinOperator.SQUARED_DIFFERENCE)
def squared_difference(call: OperatorCall) -> None:
    """Convert SQUARED_DIFFERENCE to SUB and MUL."""
    call.require_unquantized("SUB and MUL round twice, SQUARED_DIFFERENCE once")
    output, none = call.output(), _no_activation(call)
    difference = call.apply(OperationType.SUB, [*call.inputs(), none], output, output.dimensions)
    call.emit(OperationType.MUL, [difference, difference, none])


@converter(BuiltinOperator.SQUARE)
def square(call: OperatorCall) -> None:
    """Convert SQUARE to MUL."""
    input_ = call.input(0)
    call.emit(OperationType.MUL, [input_, input_, _no_activation(call)])


# ---- Rounding ---------------------------------------------------------------------------------------------


@converter(BuiltinOperator.CEIL)
def ceil(call: OperatorCall) -> None:
    """Convert CEIL to -floor(-x)."""
    shape = call.known_shape(0) or (1,)
    call.chain(
        call.input(0), *((type_, [], shape) for type_ in (OperationType.NEG, OperationType.FLOOR, OperationType.NEG))
    )


@converter(BuiltinOperator.ROUND)
def round_(call: OperatorCall) -> None:
    """Convert ROUND, half to even: add a number whose neighbors are 1 apart, and subtract it. Keep large values."""
    input_, output, none = call.input(0), call.known_output(), call.int32_scalar(FusedActivationFunc.NONE)
    if output.type != OperandType.TENSOR_FLOAT32:
        raise TfliteError("is not float32: its rounding needs the precision of float32")
    call.require_small("five operations replace it")
    shape = output.dimensions
    shift, limit = (call.constant(np.array([value]), output) for value in (_SHIFT, _LIMIT))
    shifted = call.apply(OperationType.ADD, [input_, shift, none], output, shape)
    rounded = call.apply(OperationType.SUB, [shifted, shift, none], output, shape)
    magnitude = call.apply(OperationType.ABS, [input_], output, shape)
    is_small = call.apply(OperationType.LESS, [magnitude, limit], Operand(OperandType.TENSOR_BOOL8), shape)
    call.emit(OperationType.SELECT, [is_small, rounded, input_])


@converter(BuiltinOperator.SIGN)
def sign(call: OperatorCall) -> None:
    """Convert SIGN of integers to limits of -1 and 1."""
    shape = call.known_output().dimensions
    if call.output().type != OperandType.TENSOR_INT32:
        raise TfliteError("is real; NNAPI has no sign, and limits would change NaN")
    limits = ((OperationType.MAXIMUM, -1), (OperationType.MINIMUM, 1))
    call.chain(call.input(0), *((type_, [call.int32_tensor([limit])], shape) for type_, limit in limits))
