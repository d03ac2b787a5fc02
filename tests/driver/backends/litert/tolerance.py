"""How far two right runs of a graph may lie apart: an error for each element, carried from operation to operation.

Errors are in stored values: the number itself for floats, steps for quantised values, 0 or 1 for truth values. An
operation adds an error of its own (`own_error`), and passes on those of its inputs: CpuRef's kernel is run again on
inputs moved by their errors, and what changes is the error of the output. So the bound grows with the depth as much as
the graph makes it grow, and is 0 where nothing rounds. An operation on quantised values adds one step at most.

Where each output follows each input in one direction, inputs moved all up or all down show the largest change. Where
elements are mixed (`_MIXED`) their signs are drawn, and the largest change of all is taken twice.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np

from nnhal.errors import HalError
from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.samples import BYTES, FLOATS, PER_CHANNEL
from tests.driver.one_operation import run_kernel

_CONTRACTIONS = {
    Op.CONV_2D: (0, 1), Op.DEPTHWISE_CONV_2D: (0, 1), Op.GROUPED_CONV_2D: (0, 1), Op.TRANSPOSE_CONV_2D: (0, 1),
    Op.FULLY_CONNECTED: (0, 1), Op.BATCH_MATMUL: (0, 1), Op.RNN: (0, 1),
}  # fmt: skip
"""Sums of products, and the arguments that are multiplied."""
_SUMS = {Op.MEAN, Op.REDUCE_SUM, Op.AVERAGE_POOL_2D, Op.L2_POOL_2D, Op.RESIZE_BILINEAR, Op.INSTANCE_NORMALIZATION}
_MIXED = {
    *_CONTRACTIONS, Op.SOFTMAX, Op.LOG_SOFTMAX, Op.L2_NORMALIZATION, Op.LOCAL_RESPONSE_NORMALIZATION,
    Op.INSTANCE_NORMALIZATION, Op.REDUCE_PROD,
}  # fmt: skip
_JUMPING = {Op.ARGMAX, Op.ARGMIN}
"""A small error may give any other output."""
_COMPARISONS = {Op.EQUAL, Op.NOT_EQUAL, Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL}
_EXACT = {
    Op.ABS, Op.NEG, Op.FLOOR, Op.RELU, Op.RELU1, Op.RELU6, Op.REDUCE_MAX, Op.REDUCE_MIN, Op.MAX_POOL_2D, Op.CAST,
    Op.MAXIMUM, Op.MINIMUM, Op.SELECT, Op.CONCATENATION,
}  # fmt: skip
"""They round nothing, unless they bring quantised values to another scale."""
_MOVES = {
    Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS, Op.TRANSPOSE, Op.PACK, Op.SPLIT, Op.TILE, Op.SLICE, Op.STRIDED_SLICE,
    Op.GATHER, Op.EMBEDDING_LOOKUP, Op.REVERSE, Op.CHANNEL_SHUFFLE, Op.PAD, Op.PAD_V2, Op.MIRROR_PAD, Op.FILL,
    Op.DEPTH_TO_SPACE, Op.SPACE_TO_DEPTH, Op.BATCH_TO_SPACE_ND, Op.SPACE_TO_BATCH_ND, Op.RESIZE_NEAREST_NEIGHBOR,
}  # fmt: skip
"""They move stored values as they are."""
_UNIT = {T.TENSOR_FLOAT32: 2.0**-22, T.TENSOR_FLOAT16: 2.0**-10}
"""Two units in the last place: those of the engine's approximations, and of CpuRef, which sums half floats as such."""
_CURVES = {Op.EXP, Op.LOG, Op.SIN, Op.TANH, Op.LOGISTIC, Op.POW, Op.ELU, Op.RSQRT, Op.SOFTMAX, Op.LOG_SOFTMAX}
_CURVE_UNITS = 16
_MOST_PROBES = 8

Argument = tuple[Operand, AnyArray | None, AnyArray | None]
"""Operand, value, error; no error is an exact value."""


def errors(
    type_: Op, arguments: Sequence[Argument], outputs: Sequence[Operand], values: Sequence[AnyArray]
) -> list[AnyArray]:
    """The error of each output of an operation.

    Args:
        outputs: the operands as the model declares them.
        values: what CpuRef makes of the arguments' values.
    """
    moved = [i for i, (_, _, error) in enumerate(arguments) if error is not None and error.any()]
    own = [own_error(type_, arguments, operand, value) for operand, value in zip(outputs, values, strict=True)]
    if not moved:
        return own
    if type_ in _JUMPING:
        return [np.full(value.shape, np.inf) for value in values]
    if type_ in _COMPARISONS:
        return [_undecided(arguments)]
    given = [np.zeros(value.shape) for value in values]
    for arrays in _probes(type_, arguments, moved):
        try:
            found = run_kernel(type_, [(a[0], array) for a, array in zip(arguments, arrays, strict=True)], outputs)
        except HalError:
            return [np.full(value.shape, np.inf) for value in values]
        for error, one, value in zip(given, found, values, strict=True):
            np.fmax(error, np.abs(one.astype(np.float64) - value.astype(np.float64)), out=error)
    if type_ in _MIXED:
        given = [np.full(error.shape, 2 * error.max(initial=0)) for error in given]
    return [a + b for a, b in zip(given, own, strict=True)]


def own_error(type_: Op, arguments: Sequence[Argument], operand: Operand, value: AnyArray) -> AnyArray:
    """What two right kernels may differ by on the same inputs."""
    if type_ in _MOVES or operand.type not in (*FLOATS, *BYTES):
        return np.zeros(value.shape)
    if operand.type in BYTES:
        same = all(a.scale in (0, operand.scale) and a.zero_point == operand.zero_point for a, _, _ in arguments)
        return np.full(value.shape, 0.0 if type_ in _EXACT and (same or type_ == Op.CAST) else 1.0)
    if type_ in _EXACT:
        return np.zeros(value.shape)
    unit = _UNIT[T(operand.type)] * (_CURVE_UNITS if type_ in _CURVES else 1)
    if type_ == Op.REDUCE_PROD:  # each factor rounds
        unit *= np.prod(arguments[0][0].dimensions)
    # the smallest half is 2**-24, and intermediate results of CpuRef are halves
    size = np.abs(value.astype(np.float64)) + np.abs(value).max(initial=0) / 8 + 2.0**-12
    return np.asarray(unit * (size + _terms(type_, arguments)))


def _terms(type_: Op, arguments: Sequence[Argument]) -> float:
    """The size of what is summed: roundings grow with the number of terms, cancellation does not shrink them."""
    if type_ in _CONTRACTIONS:
        (x, first), (y, second) = ((arguments[i][0], real(*arguments[i][:2])) for i in _CONTRACTIONS[type_])
        count = np.prod(y.dimensions[1:]) if type_ != Op.BATCH_MATMUL else max(x.dimensions[-2:])
        rest = [real(a, v) for a, v, _ in arguments[2:5] if a.dimensions and v is not None]
        return float(count * _most(first) * _most(second)) + 8 * sum(_most(one) for one in rest)
    if type_ in _SUMS or type_ in (Op.L2_NORMALIZATION, Op.LOCAL_RESPONSE_NORMALIZATION):
        x = arguments[0][0]
        count = np.prod(x.dimensions) if type_ == Op.REDUCE_SUM else 8
        return float(count * _most(real(*arguments[0][:2])))
    return 0.0


def _most(numbers: AnyArray) -> float:
    return float(np.abs(numbers).max(initial=0))


def real(operand: Operand, value: AnyArray | None) -> AnyArray:
    """The numbers that stored values mean."""
    assert value is not None
    wide = np.asarray(value).astype(np.float64)
    if operand.type == PER_CHANNEL:
        return wide
    return (wide - operand.zero_point) * operand.scale if operand.scale else wide


def _undecided(arguments: Sequence[Argument]) -> AnyArray:
    """1 where two values lie so near each other that their comparison may come out either way."""
    (x, dx), (y, dy) = ((real(o, v), _real_error(o, e)) for o, v, e in arguments)
    return np.asarray((np.abs(x - y) <= dx + dy) & (dx + dy > 0), np.float64)


def _real_error(operand: Operand, error: AnyArray | None) -> AnyArray:
    return np.zeros(()) if error is None else np.asarray(error * (operand.scale or 1.0))


def _probes(type_: Op, arguments: Sequence[Argument], moved: Sequence[int]) -> Iterator[list[AnyArray | None]]:
    """Values of all arguments with those that have errors moved by them."""
    if type_ in _MIXED:
        random = np.random.default_rng(0)
        patterns: Iterator[Sequence[object]] = (
            [random.choice([-1, 1], arguments[i][0].dimensions) for i in moved] for _ in range(_MOST_PROBES)
        )
    else:
        # both ends come first, whatever the number of arguments
        ends = [(1,) * len(moved), (-1,) * len(moved)]
        patterns = islice(dict.fromkeys([*ends, *islice(product((1, -1), repeat=len(moved)), 64)]), _MOST_PROBES)
    for signs in patterns:
        arrays = [value for _, value, _ in arguments]
        for i, sign in zip(moved, signs, strict=True):
            arrays[i] = _moved(arguments[i], sign)
        yield arrays


def _moved(argument: Argument, sign: object) -> AnyArray:
    _, value, error = argument
    assert value is not None and error is not None
    if value.dtype.kind == "b":
        return value ^ (error > 0) if np.any(np.asarray(sign) > 0) else value
    there = value.astype(np.float64) + np.asarray(sign) * (error if value.dtype.kind == "f" else np.ceil(error))
    if value.dtype.kind != "f":
        limits = np.iinfo(value.dtype.str)
        there = np.clip(there, limits.min, limits.max)
    return np.asarray(there.astype(value.dtype))
