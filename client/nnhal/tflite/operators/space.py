"""Rearrangement, padding and filling: SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, PAD, PADV2, MIRROR_PAD, FILL and others."""

from collections.abc import Sequence

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.operators.concatenation import emit_broadcast
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.types import AnyArray, Operand, OperandType, OperationType

_REAL = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)


@converter(BuiltinOperator.SPACE_TO_DEPTH, BuiltinOperator.DEPTH_TO_SPACE)
def blocks(call: OperatorCall) -> None:
    """Convert SPACE_TO_DEPTH and DEPTH_TO_SPACE. The order of elements is the same in both formats."""
    call.emit(call.counterpart, [call.input(0), call.int32_scalar(call.option("block_size"))])


# ---- BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND ----------------------------------------------------------------


@converter(BuiltinOperator.BATCH_TO_SPACE_ND)
def batch_to_space(call: OperatorCall) -> None:
    """Convert BATCH_TO_SPACE_ND. NNAPI has no crops, so a SLICE follows; and rank 3 gets a width of 1."""
    value, (batches, height, width, depth) = _as_image(call)
    down, across = _block(call)
    crops = _pairs(call)
    whole = (batches // (down * across), height * down, width * across, depth)
    begins = [0, crops[0][0], crops[1][0], 0]
    sizes = [whole[0], whole[1] - sum(crops[0]), whole[2] - sum(crops[1]), depth]
    steps: list[tuple[OperationType, list[int], Sequence[int]]] = [
        (OperationType.BATCH_TO_SPACE_ND, [call.int32_tensor([down, across])], whole)
    ]
    if any(map(sum, crops)):
        steps.append((OperationType.SLICE, [call.int32_tensor(begins), call.int32_tensor(sizes)], sizes))
    call.chain(value, *steps)


@converter(BuiltinOperator.SPACE_TO_BATCH_ND)
def space_to_batch(call: OperatorCall) -> None:
    """Convert SPACE_TO_BATCH_ND. Rank 3 gets a width of 1."""
    value, (batches, height, width, depth) = _as_image(call)
    down, across = _block(call)
    paddings = _pairs(call)
    arguments = [
        call.int32_tensor([down, across]),
        call.constant(np.array(paddings), Operand(OperandType.TENSOR_INT32)),
    ]
    height, width = height + sum(paddings[0]), width + sum(paddings[1])
    whole = (batches * down * across, height // down, width // across, depth)
    call.chain(value, (OperationType.SPACE_TO_BATCH_ND, arguments, whole))


def _as_image(call: OperatorCall) -> tuple[int, tuple[int, int, int, int]]:
    """Return the first input with rank 4, and its shape. A tensor of rank 3 becomes an image of width 1."""
    shape, value = call.known_shape(0), call.input(0)
    if len(shape) not in (3, 4):
        raise TfliteError(f"the input has rank {len(shape)}; expected 3 or 4")
    if len(shape) == 4:
        return value, shape
    image = (shape[0], shape[1], 1, shape[2])
    return call.apply(OperationType.RESHAPE, [value, call.int32_tensor(image)], call.operand(value), image), image


def _block(call: OperatorCall) -> tuple[int, int]:
    """Return the height and width of a block."""
    sides = call.integers(1)
    if len(sides) != len(call.shape(0)) - 2 or any(side < 1 for side in sides):
        raise TfliteError(f"a block of {sides} for rank {len(call.shape(0))}")
    return sides[0], (sides[1] if len(sides) > 1 else 1)


def _pairs(call: OperatorCall) -> list[list[int]]:
    """Return crops or paddings: those of the height, and those of the width."""
    if call.tensor(2).type != TensorType.INT32:
        raise TfliteError(f"{call.tensor(2)} is not int32: LiteRT reads it as if it were")
    values: AnyArray = call.values(2)
    pairs: list[list[int]] = values.tolist()
    if values.shape != (len(call.shape(0)) - 2, 2) or values.min(initial=0) < 0:
        raise TfliteError(f"{call.tensor(2)} is {pairs}; expected two numbers >= 0 for each side")
    return pairs if len(pairs) == 2 else [*pairs, [0, 0]]


# ---- Padding ----------------------------------------------------------------------------------------------


@converter(BuiltinOperator.PAD)
def pad(call: OperatorCall) -> None:
    """Convert PAD. Both formats pad with the real value 0."""
    call.emit(OperationType.PAD, [call.input(0), _paddings(call)])


@converter(BuiltinOperator.PADV2)
def pad_v2(call: OperatorCall) -> None:
    """Convert PADV2. The value, a tensor in TFLite, is a scalar in NNAPI: the stored integer if it is quantized."""
    call.require_same_quantization("TFLite pads with a stored value")
    input_ = call.input(0)
    value = _scalar_like(call, 2, call.operand(input_))
    call.emit(OperationType.PAD_V2, [input_, _paddings(call), value])


@converter(BuiltinOperator.MIRROR_PAD)
def mirror_pad(call: OperatorCall) -> None:
    """Convert MIRROR_PAD. The modes have the same numbers in both formats."""
    call.emit(OperationType.MIRROR_PAD, [call.input(0), _paddings(call), call.int32_scalar(call.option("mode", 0))])


def _paddings(call: OperatorCall) -> int:
    """Return the operand of the paddings, two for each dimension."""
    values: AnyArray = call.values(1)
    if not values.size or values.shape != (len(call.shape(0)), 2) or values.min() < 0:
        raise TfliteError(f"paddings are {values.tolist()}; expected two numbers >= 0 for each dimension")
    return call.constant(values, Operand(OperandType.TENSOR_INT32))


# ---- Filling ----------------------------------------------------------------------------------------------


@converter(BuiltinOperator.FILL)
def fill(call: OperatorCall) -> None:
    """Convert FILL. The value, a tensor in TFLite, is a scalar in NNAPI: one that is not constant is repeated.

    Rank 0 is [1] in NNAPI.
    """
    if not call.is_constant(1):
        emit_broadcast(call, 1)
        return
    if call.is_constant(0):
        shape = call.int32_tensor(call.integers(0) or (1,))
    else:
        shape = call.input(0)
    call.emit(OperationType.FILL, [shape, _scalar_like(call, 1, call.output())])


@converter(BuiltinOperator.ZEROS_LIKE)
def zeros_like(call: OperatorCall) -> None:
    """Convert ZEROS_LIKE to FILL, if the shape is known."""
    output = call.known_output()
    zero = call.float_scalar(0, output) if output.type in _REAL else call.int32_scalar(0)
    call.emit(OperationType.FILL, [call.int32_tensor(output.dimensions), zero])


def _scalar_like(call: OperatorCall, position: int, like: Operand) -> int:
    value = call.value(position)
    return call.float_scalar(value, like) if like.type in _REAL else call.int32_scalar(value)
