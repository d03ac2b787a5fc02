"""Error bounds for two correct runs of a graph, for each element, propagated from operation to operation.

Errors are in units of stored values: numbers for floats, steps for quantized values, and 0 or 1 for truth values. An
operation adds its own error (`own_error`) to the error that its inputs cause. To measure the latter, CpuRef's kernel
runs again on inputs shifted by their errors. The difference of the results is the error of the output. The bound
is 0 if no operation rounds. An operation on quantized values adds at most one step. The rounding of a layer over a
sequence counts as an error of its inputs, because the layer itself can amplify it.

If an output is monotonic in each input, shifting all inputs up or all down gives the largest difference. Other
operations (`_MIXED`) are probed with random signs, and the bound is twice the largest difference.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np

from nnhal.errors import HalError
from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.support.samples import BYTES, FLOATS, PER_CHANNEL
from tests.driver.one_operation import run_kernel

_CONTRACTIONS = {
    Op.CONV_2D: (0, 1), Op.DEPTHWISE_CONV_2D: (0, 1), Op.GROUPED_CONV_2D: (0, 1), Op.TRANSPOSE_CONV_2D: (0, 1),
    Op.FULLY_CONNECTED: (0, 1), Op.BATCH_MATMUL: (0, 1), Op.RNN: (0, 1),
}  # fmt: skip
"""Sums of products, with the arguments that are multiplied."""
_SUMS = {Op.MEAN, Op.REDUCE_SUM, Op.AVERAGE_POOL_2D, Op.L2_POOL_2D, Op.RESIZE_BILINEAR, Op.INSTANCE_NORMALIZATION}
_SEQUENCES = {
    Op.UNIDIRECTIONAL_SEQUENCE_RNN, Op.BIDIRECTIONAL_SEQUENCE_RNN, Op.UNIDIRECTIONAL_SEQUENCE_LSTM,
    Op.BIDIRECTIONAL_SEQUENCE_LSTM,
}  # fmt: skip
"""Layers that compute with their own results again."""
_LSTMS = {Op.UNIDIRECTIONAL_SEQUENCE_LSTM, Op.BIDIRECTIONAL_SEQUENCE_LSTM}
_MIXED = {
    *_CONTRACTIONS, *_SEQUENCES, Op.SOFTMAX, Op.LOG_SOFTMAX, Op.L2_NORMALIZATION, Op.LOCAL_RESPONSE_NORMALIZATION,
    Op.INSTANCE_NORMALIZATION, Op.REDUCE_PROD,
}  # fmt: skip
_DISCONTINUOUS = {Op.ARGMAX, Op.ARGMIN}
"""A small error of an input can change the output arbitrarily."""
_COMPARISONS = {Op.EQUAL, Op.NOT_EQUAL, Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL}
_EXACT = {
    Op.ABS, Op.NEG, Op.FLOOR, Op.RELU, Op.RELU1, Op.RELU6, Op.REDUCE_MAX, Op.REDUCE_MIN, Op.MAX_POOL_2D, Op.CAST,
    Op.MAXIMUM, Op.MINIMUM, Op.SELECT, Op.CONCATENATION,
}  # fmt: skip
"""Operations that round nothing, unless they convert quantized values to another scale."""
_MOVES = {
    Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS, Op.TRANSPOSE, Op.PACK, Op.SPLIT, Op.TILE, Op.SLICE, Op.STRIDED_SLICE,
    Op.GATHER, Op.EMBEDDING_LOOKUP, Op.REVERSE, Op.CHANNEL_SHUFFLE, Op.PAD, Op.PAD_V2, Op.MIRROR_PAD, Op.FILL,
    Op.DEPTH_TO_SPACE, Op.SPACE_TO_DEPTH, Op.BATCH_TO_SPACE_ND, Op.SPACE_TO_BATCH_ND, Op.RESIZE_NEAREST_NEIGHBOR,
}  # fmt: skip
"""Operations that copy stored values unchanged."""
_UNIT = {T.TENSOR_FLOAT32: 2.0**-22, T.TENSOR_FLOAT16: 2.0**-10}
"""Two units in the last place. The engine approximates, and CpuRef sums half-precision floats in half precision."""
_CURVES = {
    Op.EXP,
    Op.LOG,
    Op.SIN,
    Op.TANH,
    Op.LOGISTIC,
    Op.POW,
    Op.ELU,
    Op.RSQRT,
    Op.SOFTMAX,
    Op.LOG_SOFTMAX,
    *_SEQUENCES,
}
_CURVE_UNITS = 16
_MAX_PROBES = 8

Argument = tuple[Operand, AnyArray | None, AnyArray | None]
"""Operand, value and error; the error of an exact value is None."""


def errors(
    type_: Op, arguments: Sequence[Argument], outputs: Sequence[Operand], values: Sequence[AnyArray]
) -> list[AnyArray]:
    """Return the error of each output of an operation.

    Args:
        type_: the type of the operation.
        arguments: the arguments with their errors.
        outputs: the operands as the model declares them.
        values: the results of CpuRef.
    """
    if type_ in _SEQUENCES:
        arguments = [_with_rounding(*argument) for argument in arguments]
    inexact = [i for i, (_, _, error) in enumerate(arguments) if error is not None and error.any()]
    own = [own_error(type_, arguments, operand, value) for operand, value in zip(outputs, values, strict=True)]
    if not inexact:
        return own
    if type_ in _DISCONTINUOUS:
        return [np.full(value.shape, np.inf) for value in values]
    if type_ in _COMPARISONS:
        return [_ambiguous(arguments)]
    propagated = [np.zeros(value.shape) for value in values]
    for arrays in _probes(type_, arguments, inexact):
        try:
            shifted = run_kernel(type_, [(a[0], array) for a, array in zip(arguments, arrays, strict=True)], outputs)
        except HalError:
            return [np.full(value.shape, np.inf) for value in values]
        for error, result, value in zip(propagated, shifted, values, strict=True):
            np.fmax(error, np.abs(result.astype(np.float64) - value.astype(np.float64)), out=error)
    if type_ in _MIXED:
        propagated = [np.full(error.shape, 2 * error.max(initial=0)) for error in propagated]
    return [a + b for a, b in zip(propagated, own, strict=True)]


def own_error(type_: Op, arguments: Sequence[Argument], operand: Operand, value: AnyArray) -> AnyArray:
    """Return the error bound for two correct kernels with the same inputs."""
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
    # the smallest half-precision number is 2**-24, and intermediate results of CpuRef have half precision
    size = np.abs(value.astype(np.float64)) + np.abs(value).max(initial=0) / 8 + 2.0**-12
    if type_ in _LSTMS and not arguments[1][0].dimensions[-1:] > (0,):
        size += 1  # without an input gate it is 1 - the forget gate, which cancels
    return np.asarray(unit * (size + _term_magnitude(type_, arguments)))


def _with_rounding(operand: Operand, value: AnyArray | None, error: AnyArray | None) -> Argument:
    """Return an argument of a layer whose own sums count as an error of its weights and inputs.

    A sum that rounds is the exact sum of terms that differ in their last places. The layer can amplify that: a layer
    normalization divides by the deviation of the sums, which is tiny if they are nearly equal.
    """
    if value is None or operand.type not in _UNIT or not operand.dimensions:
        return operand, value, error
    rounding = _UNIT[T(operand.type)] * np.abs(value.astype(np.float64))
    return operand, value, rounding if error is None else error + rounding


def _term_magnitude(type_: Op, arguments: Sequence[Argument]) -> float:
    """Return the sum of the magnitudes of an operation's terms. Rounding errors scale with it despite cancellation."""
    if type_ in _CONTRACTIONS:
        (x, first), (y, second) = ((arguments[i][0], real(*arguments[i][:2])) for i in _CONTRACTIONS[type_])
        count = np.prod(y.dimensions[1:]) if type_ != Op.BATCH_MATMUL else max(x.dimensions[-2:])
        rest = [real(a, v) for a, v, _ in arguments[2:5] if a.dimensions and v is not None]
        return float(count * _max_abs(first) * _max_abs(second)) + 8 * sum(_max_abs(numbers) for numbers in rest)
    if type_ in _SUMS or type_ in (Op.L2_NORMALIZATION, Op.LOCAL_RESPONSE_NORMALIZATION):
        x = arguments[0][0]
        count = np.prod(x.dimensions) if type_ == Op.REDUCE_SUM else 8
        return float(count * _max_abs(real(*arguments[0][:2])))
    return 0.0


def _max_abs(numbers: AnyArray) -> float:
    return float(np.abs(numbers).max(initial=0))


def real(operand: Operand, value: AnyArray | None) -> AnyArray:
    """Return the real numbers that stored values represent."""
    assert value is not None
    wide = np.asarray(value).astype(np.float64)
    if operand.type == PER_CHANNEL:
        return wide
    return (wide - operand.zero_point) * operand.scale if operand.scale else wide


def _ambiguous(arguments: Sequence[Argument]) -> AnyArray:
    """Return 1 for each element whose comparison may have either result within the errors."""
    (x, dx), (y, dy) = ((real(o, v), _real_error(o, e)) for o, v, e in arguments)
    return np.asarray((np.abs(x - y) <= dx + dy) & (dx + dy > 0), np.float64)


def _real_error(operand: Operand, error: AnyArray | None) -> AnyArray:
    return np.zeros(()) if error is None else np.asarray(error * (operand.scale or 1.0))


def _probes(type_: Op, arguments: Sequence[Argument], inexact: Sequence[int]) -> Iterator[list[AnyArray | None]]:
    """Yield the values of all arguments, shifted by their errors in varying directions."""
    if type_ in _MIXED:
        random = np.random.default_rng(0)
        patterns: Iterator[Sequence[object]] = (
            [random.choice([-1, 1], arguments[i][0].dimensions) for i in inexact] for _ in range(_MAX_PROBES)
        )
    else:
        # all up and all down come first
        extremes = [(1,) * len(inexact), (-1,) * len(inexact)]
        patterns = islice(dict.fromkeys([*extremes, *islice(product((1, -1), repeat=len(inexact)), 64)]), _MAX_PROBES)
    for signs in patterns:
        arrays = [value for _, value, _ in arguments]
        for i, sign in zip(inexact, signs, strict=True):
            arrays[i] = _shifted(arguments[i], sign)
        yield arrays


def _shifted(argument: Argument, sign: object) -> AnyArray:
    _, value, error = argument
    assert value is not None and error is not None
    if value.dtype.kind == "b":
        return value ^ (error > 0) if np.any(np.asarray(sign) > 0) else value
    shifted = value.astype(np.float64) + np.asarray(sign) * (error if value.dtype.kind == "f" else np.ceil(error))
    if value.dtype.kind != "f":
        limits = np.iinfo(value.dtype.str)
        shifted = np.clip(shifted, limits.min, limits.max)
    return np.asarray(shifted.astype(value.dtype))
