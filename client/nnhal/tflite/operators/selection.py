"""Comparisons, and selection by a condition: EQUAL and others, SELECT, SELECT_V2, ONE_HOT."""

from math import prod

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.operators.concatenation import broadcast, repeated_constant
from nnhal.tflite.operators.reshape import reshaped_booleans
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import Operand, OperandType, OperationType

_SMALLEST_SCALE = 2.0**-8
"""From this scale on, TFLite's comparison of quantized values distinguishes all of them. It compares 256 * scale."""


@converter(
    BuiltinOperator.EQUAL,
    BuiltinOperator.NOT_EQUAL,
    BuiltinOperator.LESS,
    BuiltinOperator.LESS_EQUAL,
    BuiltinOperator.GREATER,
    BuiltinOperator.GREATER_EQUAL,
)
def comparison(call: OperatorCall) -> None:
    """Convert a comparison. NNAPI compares real values, TFLite rounds quantized ones first."""
    first, second = call.description(0), call.description(1)
    if call.tensor(0).scales:
        if (first.scale, first.zero_point) != (second.scale, second.zero_point):
            raise TfliteError("scales or zero points differ: TFLite rounds before it compares")
        if not _SMALLEST_SCALE <= first.scale < 1:
            raise TfliteError(f"scale {first.scale:g}: TFLite's comparison rounds in another way than NNAPI's")
    call.emit(call.counterpart, call.inputs())


@converter(BuiltinOperator.SELECT, BuiltinOperator.SELECT_V2)
def select(call: OperatorCall) -> None:
    """Convert SELECT and SELECT_V2. NNAPI does not broadcast, and TFLite does not convert between scales."""
    call.require_same_quantization("TFLite selects stored values")
    shape = call.known_output().dimensions
    is_per_row = call.operator.code == BuiltinOperator.SELECT and len(call.shape(0)) < len(shape)
    if is_per_row and prod(call.known_shape(0)) > 1:
        condition = _row_condition(call, shape)
    else:
        condition = broadcast(call, 0, shape)
    call.emit(OperationType.SELECT, [condition, broadcast(call, 1, shape), broadcast(call, 2, shape)])


def _row_condition(call: OperatorCall, shape: tuple[int, ...]) -> int:
    """Return a condition of rank 1, with one element for each row, for all elements of a shape.

    NNAPI cannot reshape booleans. So numbers are selected, reshaped, and compared.
    """
    call.require_small("NNAPI has no such condition, and four operations replace it")
    rows = call.known_shape(0)
    if rows != shape[:1]:
        raise TfliteError(f"condition of shape {list(rows)} for {list(shape)}")
    column = (*rows, *(1 for _ in shape[1:]))
    compared = reshaped_booleans(call, call.input(0), call.int32_tensor(column), column, shape)
    return call.apply(OperationType.GREATER, compared, Operand(OperandType.TENSOR_BOOL8), shape)


@converter(BuiltinOperator.ONE_HOT)
def one_hot(call: OperatorCall) -> None:
    """Convert ONE_HOT to a comparison of the indices with 0, 1, ..., and SELECT between the two values."""
    depth, output, shape = call.value(1), call.known_output(), call.known_shape(0)
    on, off = np.array(call.value(2)), np.array(call.value(3))
    axis = call.axis(call.option("axis", -1), len(shape) + 1)
    if len(output.dimensions) <= axis or output.dimensions[axis] != depth:
        raise TfliteError(f"depth {depth} along axis {axis} of an output of shape {list(output.dimensions)}")
    indices, integer = call.input(0), Operand(OperandType.TENSOR_INT32)
    if shape:
        inserted = (*shape[:axis], 1, *shape[axis:])
        indices = call.apply(OperationType.EXPAND_DIMS, [indices, call.int32_scalar(axis)], integer, inserted)
    column = np.arange(depth, dtype=np.int64).reshape(-1, *(1 for _ in shape[axis:]))
    arguments = [indices, call.constant(column, integer)]
    if output.type == OperandType.TENSOR_BOOL8 and bool(on) != bool(off):
        call.emit(OperationType.EQUAL if on else OperationType.NOT_EQUAL, arguments)
        return
    condition = call.apply(OperationType.EQUAL, arguments, Operand(OperandType.TENSOR_BOOL8), output.dimensions)
    choices = [repeated_constant(call, value, output.dimensions, output) for value in (on, off)]
    call.emit(OperationType.SELECT, [condition, *choices])
