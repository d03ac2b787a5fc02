"""Shapes: RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE, SHAPE, RANK.

A shape that the model computes with is folded. SHAPE and RANK remain as results of the model.
"""

from collections.abc import Sequence

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.types import Operand, OperandLifeTime, OperandType, OperationType


@converter(BuiltinOperator.RESHAPE)
def reshape(call: OperatorCall) -> None:
    """Convert RESHAPE. The shape is the second input or, in old files, an option. Rank 0 is [1] in NNAPI."""
    input_ = call.input(0)
    if call.has_input(1) and call.tensor(1).type != TensorType.INT32:
        raise TfliteError(f"{call.tensor(1)} is not int32: LiteRT ignores it")
    if not call.has_input(1):
        shape = call.int32_tensor(call.option("new_shape") or (1,))
    elif call.is_constant(1):
        shape = call.int32_tensor(call.integers(1) or (1,))
    else:
        shape = call.input(1)
    _emit_reshape(call, input_, shape)


@converter(BuiltinOperator.SQUEEZE)
def squeeze(call: OperatorCall) -> None:
    """Convert SQUEEZE. Without axes, both operations remove every dimension of length 1."""
    input_, rank = call.input(0), len(call.shape(0))
    if call.operand(input_).type in (OperandType.TENSOR_INT32, OperandType.TENSOR_BOOL8) or not rank:
        _emit_reshape(call, input_, call.int32_tensor(call.known_output().dimensions))
        return
    axes = [call.axis(axis, rank) for axis in call.option("squeeze_dims", ()) or ()]
    omitted = Operand(OperandType.TENSOR_INT32, (0,), lifetime=OperandLifeTime.NO_VALUE)
    call.emit(OperationType.SQUEEZE, [input_, call.int32_tensor(axes) if axes else call.add(omitted)])


@converter(BuiltinOperator.EXPAND_DIMS)
def expand_dims(call: OperatorCall) -> None:
    """Convert EXPAND_DIMS. The axis, a tensor in TFLite, is a scalar in NNAPI."""
    shape = call.shape(0)
    axis = call.axis(call.value(1), len(shape) + 1)
    input_ = call.input(0)
    if shape and call.operand(input_).type != OperandType.TENSOR_BOOL8:
        call.emit(OperationType.EXPAND_DIMS, [input_, call.int32_scalar(axis)])
    else:
        _emit_reshape(call, input_, call.int32_tensor(call.known_output().dimensions))


@converter(BuiltinOperator.TRANSPOSE)
def transpose(call: OperatorCall) -> None:
    """Convert TRANSPOSE. If only dimensions of length 1 move, RESHAPE does it for more types."""
    shape, input_ = call.known_shape(0), call.input(0)
    order = [call.axis(axis, len(shape)) for axis in call.integers(1)]
    if sorted(order) != list(range(len(shape))):
        raise TfliteError(f"{order} is not a permutation of {len(shape)} dimensions")
    moved = [axis for axis in order if shape[axis] > 1]
    if moved == sorted(moved):
        _emit_reshape(call, input_, call.int32_tensor(call.known_output().dimensions))
    else:
        call.emit(OperationType.TRANSPOSE, [input_, call.int32_tensor(order)])


def _emit_reshape(call: OperatorCall, input_: int, shape: int) -> None:
    """Emit a RESHAPE to a shape. NNAPI cannot reshape booleans: numbers are selected, reshaped, and compared."""
    if call.operand(input_).type != OperandType.TENSOR_BOOL8:
        call.emit(OperationType.RESHAPE, [input_, shape])
        return
    call.require_small("NNAPI cannot reshape booleans, and three operations replace it")
    call.emit(OperationType.GREATER, reshaped_booleans(call, input_, shape, call.known_output().dimensions))


def reshaped_booleans(
    call: OperatorCall, booleans: int, shape: int, dimensions: Sequence[int], result: Sequence[int] = (1,)
) -> list[int]:
    """Emit a RESHAPE of booleans as numbers. Return the arguments of the GREATER that makes them booleans again.

    Args:
        call: the operator.
        booleans: the operand to reshape.
        shape: the operand of the new shape.
        dimensions: the new shape.
        result: the shape to which GREATER broadcasts the new shape.
    """
    real = Operand(OperandType.TENSOR_FLOAT32)
    numbers = call.apply(OperationType.RESHAPE, [_numbers_of_booleans(call, booleans), shape], real, dimensions)
    return [numbers, call.constant(np.zeros(result, np.float32), real)]


def _numbers_of_booleans(call: OperatorCall, booleans: int) -> int:
    """Emit a SELECT of 1 and 0, for operations that take no booleans. Return its output, of float32."""
    dimensions, real = call.operand(booleans).dimensions, Operand(OperandType.TENSOR_FLOAT32)
    if not all(dimensions):
        raise TfliteError(f"booleans have unknown dimensions: {list(dimensions)}")
    ones, zeros = (call.constant(np.full(dimensions, value, np.float32), real) for value in (1, 0))
    return call.apply(OperationType.SELECT, [booleans, ones, zeros], real, dimensions)


@converter(BuiltinOperator.SHAPE)
def shape(call: OperatorCall) -> None:
    """Convert SHAPE of a known shape."""
    _write_constant(call, call.known_shape(0))


@converter(BuiltinOperator.RANK)
def rank(call: OperatorCall) -> None:
    """Convert RANK."""
    _write_constant(call, [len(call.shape(0))])


def _write_constant(call: OperatorCall, values: Sequence[int]) -> None:
    """Emit a RESHAPE to write a constant: an operand is not both a constant and a result of the model."""
    call.emit(OperationType.RESHAPE, [call.int32_tensor(values), call.int32_tensor([len(values)])])
