"""Elements by position: SLICE, STRIDED_SLICE, GATHER, GATHER_ND, REVERSE_V2."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import AnyArray, Operand, OperandType, OperationType

_MAX_STRIDED_RANK = 4
"""Largest rank of NNAPI's STRIDED_SLICE."""
_MOST_AXES = 5
"""Largest number of axes that need an operation each."""


@converter(BuiltinOperator.SLICE)
def slice_(call: OperatorCall) -> None:
    """Convert SLICE. A size of -1 extends to the end in both formats."""
    call.emit(OperationType.SLICE, call.inputs())


# ---- STRIDED_SLICE --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """A slice of one dimension. Its elements are begin, begin + step, and so on.

    Attributes:
        begin: the first element, counted from the start.
        step: distance of the elements.
        dropped: whether the output lacks the dimension.
    """

    begin: int
    size: int
    step: int
    dropped: bool


@converter(BuiltinOperator.STRIDED_SLICE)
def strided_slice(call: OperatorCall) -> None:
    """Convert STRIDED_SLICE with constant positions. RESHAPE inserts new dimensions."""
    shape, output = call.known_shape(0), call.known_output()
    cuts, result = _resolve(call, shape)
    value = call.input(0)
    if tuple(result or [1]) != output.dimensions:
        raise TfliteError(f"the output has shape {list(output.dimensions)}; the masks give {result}")
    is_whole = all(cut.size == length and cut.step == 1 for cut, length in zip(cuts, shape, strict=True))
    if is_whole:
        call.emit(OperationType.RESHAPE, [value, call.int32_tensor(output.dimensions)])
    elif output.type == OperandType.TENSOR_INT32 or len(shape) > _MAX_STRIDED_RANK:
        _slice_and_gather(call, value, cuts)
    else:
        _emit_strided_slice(call, value, cuts)


def _resolve(call: OperatorCall, shape: Sequence[int]) -> tuple[list[Cut], list[int]]:
    """Return the slice of each dimension of the input, and the shape of the output."""
    begins, ends, steps = (call.integers(position) for position in (1, 2, 3))
    if not len(begins) == len(ends) == len(steps):
        raise TfliteError(f"has {len(begins)} begins, {len(ends)} ends and {len(steps)} strides")
    ellipsis, new_axis = call.option("ellipsis_mask", 0), call.option("new_axis_mask", 0)
    given = sum(not (ellipsis | new_axis) >> i & 1 for i in range(len(begins)))
    cuts: list[Cut] = []
    result: list[int] = []
    for i, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        if ellipsis >> i & 1:
            whole = shape[len(cuts) : len(cuts) + len(shape) - given]
            cuts += [Cut(0, length, 1, dropped=False) for length in whole]
            result += whole
        elif new_axis >> i & 1:
            result.append(1)
        elif len(cuts) < len(shape):
            cuts.append(_cut(call, i, (begin, end, step), shape[len(cuts)]))
            result += [] if cuts[-1].dropped else [cuts[-1].size]
        else:
            raise TfliteError(f"has more positions than the {len(shape)} dimensions of the input")
    rest = shape[len(cuts) :]
    return [*cuts, *(Cut(0, length, 1, dropped=False) for length in rest)], [*result, *rest]


def _cut(call: OperatorCall, i: int, window: tuple[int, int, int], length: int) -> Cut:
    """Return the slice of a dimension for the position i of begin, end and strides."""
    begin, end, step = window
    from_edge, to_edge, dropped = (
        bool(call.option(name, 0) >> i & 1) for name in ("begin_mask", "end_mask", "shrink_axis_mask")
    )
    if step == 0:
        raise TfliteError("has a stride of 0")
    if dropped:
        if from_edge or step < 0 or not -length <= begin < length:
            raise TfliteError(f"drops dimension {i} of length {length} at {begin} with stride {step}")
        return Cut(begin % length, 1, 1, dropped=True)
    if call.option("offset", False):
        end += begin
    elements = range(length)[slice(None if from_edge else begin, None if to_edge else end, step)]
    if not elements:
        raise TfliteError("has an empty result; NNAPI has no empty tensors")
    return Cut(elements[0], len(elements), step, dropped=False)


def _emit_strided_slice(call: OperatorCall, value: int, cuts: Sequence[Cut]) -> None:
    """Emit STRIDED_SLICE, which drops dimensions itself. An end before element 0 needs the mask."""
    ends = [cut.begin + cut.size * cut.step for cut in cuts]
    open_ends = sum((end < 0) << i for i, end in enumerate(ends))
    dropped = sum(cut.dropped << i for i, cut in enumerate(cuts))
    vectors = [[cut.begin for cut in cuts], [max(end, 0) for end in ends], [cut.step for cut in cuts]]
    arguments = [*map(call.int32_tensor, vectors), *map(call.int32_scalar, (0, open_ends, dropped))]
    kept = [cut.size for cut in cuts if not cut.dropped] or [1]
    call.chain(value, (OperationType.STRIDED_SLICE, arguments, kept))


def _slice_and_gather(call: OperatorCall, value: int, cuts: Sequence[Cut]) -> None:
    """Emit SLICE for the strides of 1, and GATHER for the others."""
    shape = list(call.operand(value).dimensions)
    steps: list[tuple[OperationType, list[int], list[int]]] = []
    sliced = [cut.size if cut.step == 1 else length for cut, length in zip(cuts, shape, strict=True)]
    if sliced != shape:
        begins = [cut.begin if cut.step == 1 else 0 for cut in cuts]
        steps.append((OperationType.SLICE, [call.int32_tensor(begins), call.int32_tensor(sliced)], sliced))
    for axis, cut in enumerate(cuts):
        if cut.step != 1:
            sliced = [*sliced[:axis], cut.size, *sliced[axis + 1 :]]
            elements = [cut.begin + k * cut.step for k in range(cut.size)]
            steps.append((OperationType.GATHER, [call.int32_scalar(axis), call.int32_tensor(elements)], sliced))
    call.chain(value, *steps)


# ---- GATHER ---------------------------------------------------------------------------------------------


@converter(BuiltinOperator.GATHER)
def gather(call: OperatorCall) -> None:
    """Convert GATHER. NNAPI's order of inputs is input, axis, indices.

    A scalar index has shape [1] in NNAPI, so a RESHAPE drops the dimension.
    """
    axis, batches = call.axis(call.option("axis", 0), len(call.shape(0))), call.option("batch_dims", 0)
    if batches:
        _gather_in_batches(call, axis, batches)
    elif call.shape(1):
        call.emit(OperationType.GATHER, [call.input(0), call.int32_scalar(axis), call.input(1)])
    else:
        shape = call.known_shape(0)
        arguments = [call.int32_scalar(axis), call.input(1)]
        call.chain(call.input(0), (OperationType.GATHER, arguments, (*shape[:axis], 1, *shape[axis + 1 :])))


def _gather_in_batches(call: OperatorCall, axis: int, batches: int) -> None:
    """Emit GATHER for constant indices, with the batches and the axis joined to one dimension.

    Variable indices would need an addition, and one that is out of range would select from another batch.
    """
    if not call.is_constant(1):
        raise TfliteError("has batch dimensions and indices that are not constant")
    shape, indices = call.known_shape(0), np.array(call.integers(1)).reshape(call.shape(1))
    batches = call.axis(batches, indices.ndim + 1)
    if axis != batches or indices.shape[:batches] != shape[:batches]:
        raise TfliteError(f"gathers along axis {axis} after {batches} batch dimensions of {list(shape)}")
    length, rest = shape[axis], shape[axis + 1 :]
    _require_in_range(indices, length)
    count = prod(shape[:batches])
    offsets = np.arange(count).reshape((*shape[:batches], *(1 for _ in indices.shape[batches:]))) * length
    positions = call.constant(indices + offsets, Operand(OperandType.TENSOR_INT32))
    _gather_joined(call, (count * length, *rest), positions, (*indices.shape, *rest))


def _gather_joined(call: OperatorCall, joined: Sequence[int], positions: int, shape: Sequence[int]) -> None:
    """Emit GATHER along the first dimension of the input, whose leading dimensions are joined, with this result."""
    steps = [(OperationType.GATHER, [call.int32_scalar(0), positions], shape)]
    if tuple(joined) != call.known_shape(0):
        steps.insert(0, (OperationType.RESHAPE, [call.int32_tensor(joined)], joined))
    call.chain(call.input(0), *steps)


@converter(BuiltinOperator.GATHER_ND)
def gather_nd(call: OperatorCall) -> None:
    """Convert GATHER_ND to GATHER along the first dimension. Constant indices may have several coordinates."""
    shape = call.known_shape(0)
    *leading, coordinates = call.known_shape(1) or (0,)
    if not 0 < coordinates <= len(shape):
        raise TfliteError(f"has indices of shape {list(call.shape(1))} for {list(shape)}")
    rest = shape[coordinates:]
    if call.is_constant(1):
        indices = np.array(call.integers(1)).reshape(-1, coordinates)
        for column, length in zip(indices.T, shape, strict=False):
            _require_in_range(column, length)
        flat = np.ravel_multi_index(tuple(indices.T), shape[:coordinates])
        positions = call.constant(flat, Operand(OperandType.TENSOR_INT32))
        leading = [len(flat)]
    elif coordinates == 1:
        leading = leading or [1]
        positions = call.apply(
            OperationType.RESHAPE, [call.input(1), call.int32_tensor(leading)], call.description(1), leading
        )
    else:
        raise TfliteError(f"has {coordinates} coordinates that are not constant; NNAPI's GATHER has one")
    _gather_joined(call, (prod(shape[:coordinates]), *rest), positions, (*leading, *rest))


def _require_in_range(indices: AnyArray, length: int) -> None:
    if indices.size and (indices.min() < 0 or indices.max() >= length):
        raise TfliteError(f"has indices from {indices.min()} to {indices.max()} for length {length}")


# ---- REVERSE_V2 -----------------------------------------------------------------------------------------


@converter(BuiltinOperator.REVERSE_V2)
def reverse(call: OperatorCall) -> None:
    """Convert REVERSE_V2 to one REVERSE for each axis."""
    shape = call.known_shape(0)
    axes = [call.axis(axis, len(shape)) for axis in call.integers(1)]
    if not 1 <= len(axes) <= _MOST_AXES:
        raise TfliteError(f"{len(axes)} axes; 1 to {_MOST_AXES} become a few REVERSEs")
    call.chain(call.input(0), *((OperationType.REVERSE, [call.int32_tensor([axis])], shape) for axis in axes))
