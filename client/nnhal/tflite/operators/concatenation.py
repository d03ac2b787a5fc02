"""Joining, splitting and repetition: CONCATENATION, PACK, SPLIT, SPLIT_V, UNPACK, TILE, BROADCAST_TO."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import AnyArray, Operand, OperandType, OperationType

_MOST_PARTS = 5
"""Largest number of outputs that need an operation each."""
_MOST_REPEATED = 2**18
"""Largest number of elements of a constant that repeats its values."""


@converter(BuiltinOperator.CONCATENATION)
def concatenation(call: OperatorCall) -> None:
    """Convert CONCATENATION. The axis is the last input in NNAPI."""
    call.require_no_activation()
    axis = call.axis(call.option("axis", 0), len(call.shape(0)))
    if call.output().type == OperandType.TENSOR_INT32:
        _concatenate_integers(call, axis)
    else:
        call.require_same_quantization("NNAPI converts the inputs, but rounds in another way")
        call.emit(OperationType.CONCATENATION, [*call.inputs(), call.int32_scalar(axis)])


def _concatenate_integers(call: OperatorCall, axis: int) -> None:
    """Emit PACK and RESHAPE, as NNAPI's CONCATENATION takes no TENSOR_INT32. All inputs must have the same shape."""
    shapes = {call.known_shape(position) for position in range(len(call.operator.inputs))}
    if len(shapes) > 1:
        raise TfliteError("integers of different shapes: NNAPI's CONCATENATION takes no TENSOR_INT32")
    shape, output = call.known_shape(0), call.known_output()
    packed = (*shape[:axis], len(call.operator.inputs), *shape[axis:])
    joined = call.apply(OperationType.PACK, [call.int32_scalar(axis), *call.inputs()], output, packed)
    call.emit(OperationType.RESHAPE, [joined, call.int32_tensor(output.dimensions)])


@converter(BuiltinOperator.PACK)
def pack(call: OperatorCall) -> None:
    """Convert PACK. The axis is the first input in NNAPI. Tensors of rank 0 have shape [1] there."""
    shape, inputs = call.shape(0), call.inputs()
    axis = call.int32_scalar(call.axis(call.option("axis", 0), len(shape) + 1))
    if shape:
        call.emit(OperationType.PACK, [axis, *inputs])
        return
    packed = call.apply(OperationType.PACK, [axis, *inputs], call.output(), (len(inputs), 1))
    call.emit(OperationType.RESHAPE, [packed, call.int32_tensor([len(inputs)])])


@converter(BuiltinOperator.SPLIT)
def split(call: OperatorCall) -> None:
    """Convert SPLIT. TFLite's order of inputs is axis, input."""
    axis = call.axis(call.value(0), len(call.shape(1)))
    call.emit(
        OperationType.SPLIT, [call.input(1), call.int32_scalar(axis), call.int32_scalar(call.option("num_splits"))]
    )


@converter(BuiltinOperator.SPLIT_V)
def split_v(call: OperatorCall) -> None:
    """Convert SPLIT_V to SPLIT if the parts are equal, else to one SLICE for each part."""
    shape, input_ = call.known_shape(0), call.input(0)
    axis = call.axis(call.value(2), len(shape))
    lengths = _part_lengths(call, shape[axis])
    count = len(lengths)
    if len(set(lengths)) == 1:
        call.emit(OperationType.SPLIT, [input_, call.int32_scalar(axis), call.int32_scalar(count)])
        return
    if count > _MOST_PARTS:
        raise TfliteError(f"{count} parts of different lengths; at most {_MOST_PARTS} become a few SLICEs")
    begins = [0, *accumulate(lengths)]
    for position, (begin, length) in enumerate(zip(begins, lengths, strict=False)):
        window = [[0] * axis + [begin] + [0] * (len(shape) - axis - 1), [*shape[:axis], length, *shape[axis + 1 :]]]
        call.emit(OperationType.SLICE, [input_, *map(call.int32_tensor, window)], [call.write(position)])


def _part_lengths(call: OperatorCall, total: int) -> list[int]:
    """Return the lengths of the parts. One of them may be -1 in the file."""
    lengths = call.integers(1)
    if lengths.count(-1) == 1:
        lengths[lengths.index(-1)] = total - sum(lengths) - 1
    if sum(lengths) != total or min(lengths) <= 0 or len(lengths) != len(call.operator.outputs):
        raise TfliteError(f"parts of lengths {call.integers(1)} do not make up {total}")
    return lengths


@converter(BuiltinOperator.UNPACK)
def unpack(call: OperatorCall) -> None:
    """Convert UNPACK to SPLIT, and to RESHAPEs that drop the axis. Parts of rank 0 have shape [1]."""
    shape, input_, count = call.known_shape(0), call.input(0), len(call.operator.outputs)
    axis = call.axis(call.option("axis", 0), len(shape))
    if shape[axis] != count:
        raise TfliteError(f"{count} outputs for length {shape[axis]}")
    split_arguments = [call.int32_scalar(axis), call.int32_scalar(count)]
    if len(shape) == 1:
        call.emit(OperationType.SPLIT, [input_, *split_arguments])
        return
    if count >= _MOST_PARTS:
        raise TfliteError(f"{count} parts, each of which needs a RESHAPE; at most {_MOST_PARTS - 1} are converted")
    part_shape = (*shape[:axis], *shape[axis + 1 :])
    parts = [input_]
    if count > 1:
        part = replace(call.output(), dimensions=(*shape[:axis], 1, *shape[axis + 1 :]))
        parts = [call.add(part) for _ in range(count)]
        call.emit(OperationType.SPLIT, [input_, *split_arguments], parts)
    for position, part_operand in enumerate(parts):
        call.emit(OperationType.RESHAPE, [part_operand, call.int32_tensor(part_shape)], [call.write(position)])


@converter(BuiltinOperator.TILE)
def tile(call: OperatorCall) -> None:
    """Convert TILE. Both operations have the same arguments."""
    call.emit(OperationType.TILE, call.inputs())


@converter(BuiltinOperator.BROADCAST_TO)
def broadcast_to(call: OperatorCall) -> None:
    """Convert BROADCAST_TO to TILE. Booleans need LOGICAL_OR."""
    emit_broadcast(call, 0)


def emit_broadcast(call: OperatorCall, position: int) -> None:
    """Emit operations that write an input, broadcast to the output's shape."""
    type_, arguments = _broadcasting(call, position, call.known_output().dimensions)
    call.emit(type_, arguments)


def broadcast(call: OperatorCall, position: int, shape: Sequence[int]) -> int:
    """Return an input, broadcast to the shape of the output. Constants are broadcast at import."""
    operand = call.description(position)
    if call.is_constant(position):
        return repeated_constant(call, call.values(position), shape, operand)
    if operand.dimensions == tuple(shape):
        return call.input(position)
    call.require_small("NNAPI copies an input to broadcast it")
    type_, arguments = _broadcasting(call, position, shape)
    return call.apply(type_, arguments, operand, shape)


def repeated_constant(call: OperatorCall, values: AnyArray, shape: Sequence[int], like: Operand) -> int:
    """Add a constant, broadcast to a shape, with the type and quantization of an operand."""
    _require_broadcastable(values.shape, shape)
    if values.size < prod(shape) > _MOST_REPEATED:
        raise TfliteError(f"needs a constant of {prod(shape)} elements; at most {_MOST_REPEATED} repeat its values")
    return call.constant(np.broadcast_to(values, shape), like)


def _broadcasting(call: OperatorCall, position: int, shape: Sequence[int]) -> tuple[OperationType, list[int]]:
    """Return the operation that broadcasts an input to a shape, and its arguments.

    NNAPI's TILE takes no TENSOR_BOOL8, and neither takes RESHAPE. LOGICAL_OR with constants broadcasts these.
    """
    own, value = call.known_shape(position), call.input(position)
    _require_broadcastable(own, shape)
    operand = call.operand(value)
    if operand.type == OperandType.TENSOR_BOOL8:
        return OperationType.LOGICAL_OR, [value, repeated_constant(call, np.zeros((), np.bool_), shape, operand)]
    aligned = (1,) * (len(shape) - len(own)) + own
    if aligned != operand.dimensions:
        value = call.apply(OperationType.RESHAPE, [value, call.int32_tensor(aligned)], operand, aligned)
    multiples = [length // part for length, part in zip(shape, aligned, strict=True)]
    return OperationType.TILE, [value, call.int32_tensor(multiples)]


def _require_broadcastable(own: Sequence[int], shape: Sequence[int]) -> None:
    fits = len(own) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(own), reversed(shape), strict=False))
    if not fits:
        raise TfliteError(f"shape {list(own)} cannot be broadcast to {list(shape)}")
