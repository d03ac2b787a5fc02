"""Random operations for comparisons of CpuAcc with CpuRef: a strategy for each family of operations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nnhal.types import AnyArray, Operand, SymmPerChannelQuantParams
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import Value, boolean, float32, int32, int_tensor, sample, tensor

F32, F16, I32, B8 = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_INT32, T.TENSOR_BOOL8
U8, I8, PER_CHANNEL = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_QUANT8_SYMM_PER_CHANNEL
FLOATS, BYTES = (F32, F16), (U8, I8)
SAME, VALID = 1, 2


@dataclass(frozen=True)
class Case:
    """One operation.

    Attributes:
        type: the operation type.
        inputs: the arguments.
        outputs: the output operands, without shapes.
        constant: the positions of constant tensors; other tensors are inputs of the model.
    """

    type: Op
    inputs: Sequence[Value]
    outputs: Sequence[Operand]
    constant: frozenset[int] = frozenset()


class PreferringDraw:
    """Draw function that prefers the type, shape and scale of an operand of the graph."""

    def __init__(self, draw: st.DrawFn, preference: Operand) -> None:
        self.draw = draw
        self.preference = preference

    def __call__(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.draw(strategy)


Draw = st.DrawFn | PreferringDraw
Strategy = Callable[[Draw, Op], Case]
SAMPLES: dict[Op, Strategy] = {}


def samples(*types: Op) -> Callable[[Strategy], Strategy]:
    """Register a strategy for some operation types."""

    def register(strategy: Strategy) -> Strategy:
        SAMPLES.update(dict.fromkeys(types, strategy))
        return strategy

    return register


@st.composite
def cases(draw: Draw, type_: Op) -> Case:
    return SAMPLES[type_](draw, type_)


def preference_of(draw: Draw) -> Operand | None:
    return draw.preference if isinstance(draw, PreferringDraw) else None


def rng(draw: Draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def quantized(draw: Draw, type_: T, shape: Sequence[int] = ()) -> Operand:
    if type_ not in BYTES:
        return tensor(type_, shape)
    preference = preference_of(draw)
    if preference is not None and (preference.type, preference.dimensions) == (type_, tuple(shape)):
        return preference
    low, high = (0, 255) if type_ == U8 else (-128, 127)
    return tensor(type_, shape, draw(st.sampled_from([0.5, 0.1, 0.03, 0.0625])), draw(st.integers(low, high)))


def value(draw: Draw, operand: Operand) -> Value:
    return operand, sample(rng(draw), operand)


def shapes(draw: Draw, low: int = 1, high: int = 4, max_length: int = 5) -> tuple[int, ...]:
    preference = preference_of(draw)
    if preference is not None and low <= len(preference.dimensions) <= high:
        return preference.dimensions
    return tuple(draw(st.lists(st.integers(1, max_length), min_size=low, max_size=high)))


def any_rank(draw: Draw, high: int = 8) -> tuple[int, ...]:
    """Return a shape of any rank, for element-wise operations."""
    return shapes(draw, 1, high, 2) if draw(st.booleans()) else shapes(draw)


def any_of(draw: Draw, *types: T) -> T:
    preference = preference_of(draw)
    if preference is not None and preference.type in types:
        return T(preference.type)
    return draw(st.sampled_from(types))


def like(operand: Operand) -> Operand:
    return tensor(T(operand.type), (), operand.scale, operand.zero_point)


def moved_output(draw: Draw, operand: Operand) -> Operand:
    """Return an output for the operand's elements. Some operations allow another quantization."""
    return like(operand) if draw(st.integers(0, 3)) else quantized(draw, T(operand.type))


def scalar(draw: Draw, type_: T, low: float, high: float) -> Value:
    number = draw(st.floats(low, high, width=16))
    return float32(number) if type_ != F16 else (Operand(T.FLOAT16), number)


# ---- Element by element ----------------------------------------------------------------------------------


@samples(Op.ABS, Op.NEG, Op.EXP, Op.FLOOR, Op.SIN, Op.LOG, Op.SQRT)
def unary(draw: Draw, type_: Op) -> Case:
    kinds = (*FLOATS, I32) if type_ in (Op.ABS, Op.NEG) else FLOATS
    operand, x = value(draw, tensor(any_of(draw, *kinds), any_rank(draw)))
    if type_ in (Op.LOG, Op.SQRT):
        x = np.abs(np.asarray(x)) + 0.1
    return Case(type_, [(operand, x)], [like(operand)])


@samples(Op.RSQRT)
def rsqrt(draw: Draw, type_: Op) -> Case:
    operand = tensor(any_of(draw, *FLOATS), any_rank(draw))
    return Case(type_, [(operand, rng(draw).uniform(0.1, 9, operand.dimensions))], [like(operand)])


@samples(Op.RELU, Op.RELU1, Op.RELU6, Op.HARD_SWISH)
def simple(draw: Draw, type_: Op) -> Case:
    operand = quantized(draw, any_of(draw, *FLOATS, *BYTES), shapes(draw))
    return Case(type_, [value(draw, operand)], [like(operand)])


@samples(Op.LOGISTIC, Op.TANH)
def sigmoid(draw: Draw, type_: Op) -> Case:
    operand = quantized(draw, any_of(draw, *FLOATS, *BYTES), shapes(draw))
    quantization = {Op.LOGISTIC: (1 / 256, {U8: 0, I8: -128}), Op.TANH: (1 / 128, {U8: 128, I8: 0})}[type_]
    out = (
        tensor(T(operand.type), (), quantization[0], quantization[1][T(operand.type)])
        if operand.scale
        else like(operand)
    )
    return Case(type_, [value(draw, operand)], [out])


@samples(Op.ELU)
def elu(draw: Draw, type_: Op) -> Case:
    operand = tensor(any_of(draw, *FLOATS), any_rank(draw))
    return Case(type_, [value(draw, operand), scalar(draw, T(operand.type), 0.5, 2)], [like(operand)])


def broadcast(draw: Draw, low: int = 1) -> tuple[tuple[int, ...], tuple[int, ...]]:
    whole = shapes(draw, low)
    part = tuple(n if draw(st.booleans()) else 1 for n in whole)[draw(st.integers(0, len(whole) - 1)) :]
    return (whole, part) if draw(st.booleans()) else (part, whole)


@samples(Op.ADD, Op.SUB, Op.MUL)
def arithmetic(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *BYTES, I32)
    a, b = (quantized(draw, kind, shape) for shape in broadcast(draw))
    activation = 0 if kind == I32 else draw(st.integers(0, 3))
    low = 0 if kind == U8 else -128
    out = tensor(kind, (), draw(st.sampled_from([0.6, 1.7])), draw(st.integers(low, low + 255))) if a.scale else like(a)
    return Case(type_, [value(draw, a), value(draw, b), int32(activation)], [out])


@samples(Op.DIV, Op.POW)
def quotient(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *((I32,) if type_ == Op.DIV else ()))
    a, b = (tensor(kind, shape) for shape in broadcast(draw))
    random = rng(draw)
    x: AnyArray
    y: AnyArray
    if kind == I32:
        x, y = random.integers(-99, 99, a.dimensions), random.integers(1, 9, b.dimensions) * random.choice([-1, 1])
    else:
        x, y = random.uniform(0.1, 5, a.dimensions), random.uniform(0.5, 2, b.dimensions)
    activation = [int32(0 if kind == I32 else draw(st.integers(0, 3)))] if type_ == Op.DIV else []
    return Case(type_, [(a, x), (b, y), *activation], [like(a)])


@samples(Op.MAXIMUM, Op.MINIMUM)
def maximum(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *BYTES, I32)
    a, b = (quantized(draw, kind, shape) for shape in broadcast(draw))
    return Case(type_, [value(draw, a), value(draw, b)], [like(quantized(draw, kind))])


@samples(Op.PRELU)
def prelu(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *BYTES)
    whole = shapes(draw)
    part = tuple(n if draw(st.booleans()) else 1 for n in whole)
    a, b = quantized(draw, kind, whole), quantized(draw, kind, part)
    return Case(type_, [value(draw, a), value(draw, b)], [like(quantized(draw, kind))])


@samples(Op.EQUAL, Op.NOT_EQUAL, Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL)
def comparison(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *BYTES, I32, B8)
    a, b = (quantized(draw, kind, shape) for shape in broadcast(draw))
    return Case(type_, [value(draw, a), value(draw, b)], [tensor(B8)])


@samples(Op.LOGICAL_AND, Op.LOGICAL_OR)
def logic(draw: Draw, type_: Op) -> Case:
    return Case(type_, [value(draw, tensor(B8, shape)) for shape in broadcast(draw)], [tensor(B8)])


@samples(Op.LOGICAL_NOT)
def negation(draw: Draw, type_: Op) -> Case:
    return Case(type_, [value(draw, tensor(B8, any_rank(draw)))], [tensor(B8)])


@samples(Op.SELECT)
def select(draw: Draw, type_: Op) -> Case:
    kind, shape = any_of(draw, *FLOATS, *BYTES, I32), shapes(draw)
    choices = [value(draw, quantized(draw, kind, shape)) for _ in range(2)]
    return Case(type_, [value(draw, tensor(B8, shape)), *choices], [like(quantized(draw, kind))])


@samples(Op.QUANTIZE)
def quantize(draw: Draw, type_: Op) -> Case:
    out = quantized(draw, any_of(draw, *BYTES))
    return Case(type_, [value(draw, tensor(any_of(draw, *FLOATS), any_rank(draw)))], [out])


@samples(Op.DEQUANTIZE)
def dequantize(draw: Draw, type_: Op) -> Case:
    out = tensor(any_of(draw, *FLOATS))
    if draw(st.booleans()):
        shape = shapes(draw)
        scales = [draw(st.sampled_from([0.5, 0.1, 2.0])) for _ in range(shape[0])]
        return Case(type_, [value(draw, tensor(PER_CHANNEL, shape, channels=scales))], [out])
    return Case(type_, [value(draw, quantized(draw, any_of(draw, *BYTES), shapes(draw)))], [out])


@samples(Op.CAST)
def cast(draw: Draw, type_: Op) -> Case:
    operand = quantized(draw, any_of(draw, *FLOATS, U8, I32), any_rank(draw))
    x = rng(draw).uniform(-999, 999, operand.dimensions) if operand.type != U8 else sample(rng(draw), operand)
    target = any_of(draw, *FLOATS, U8, *((I32,) if operand.type in (U8, I32) else ()))
    return Case(type_, [(operand, x)], [quantized(draw, target)])


# ---- Images ----------------------------------------------------------------------------------------------


def channel_count(draw: Draw, nchw: bool, limit: int) -> int:
    """Return a number of channels."""
    preference = preference_of(draw)
    if preference is not None and len(preference.dimensions) == 4:
        return preference.dimensions[1 if nchw else 3]
    return draw(st.integers(1, limit))


def image(draw: Draw, kind: T, channels: int, nchw: bool, max_length: int = 7) -> Operand:
    preference = preference_of(draw)
    if (
        preference is not None
        and len(preference.dimensions) == 4
        and preference.dimensions[1 if nchw else 3] == channels
    ):
        return quantized(draw, kind, preference.dimensions)
    batches, height, width = (draw(st.integers(1, top)) for top in (2, max_length, max_length))
    shape = (batches, channels, height, width) if nchw else (batches, height, width, channels)
    return quantized(draw, kind, shape)


def bias_of(draw: Draw, kind: T, count: int, scale: float) -> Value:
    if kind in BYTES:
        return value(draw, tensor(I32, (count,), scale))
    return value(draw, tensor(kind, (count,)))


def weights_of(draw: Draw, kind: T, shape: Sequence[int], channels: int, per_channel: bool) -> Operand:
    if not per_channel:
        return quantized(draw, kind, shape)
    scales = [draw(st.sampled_from([0.01, 0.05, 0.03])) for _ in range(shape[channels])]
    params = SymmPerChannelQuantParams(tuple(float(np.float32(scale)) for scale in scales), channels)
    return Operand(PER_CHANNEL, tuple(shape), extra_params=params)


@samples(Op.CONV_2D, Op.DEPTHWISE_CONV_2D, Op.GROUPED_CONV_2D, Op.TRANSPOSE_CONV_2D)
def convolution(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *BYTES)
    nchw = draw(st.booleans())
    groups = draw(st.integers(1, 3)) if type_ == Op.GROUPED_CONV_2D else 1
    multiplier = draw(st.integers(1, 2))
    depth_in, depth_out = groups * channel_count(draw, nchw, 3), groups * draw(st.integers(1, 3))
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    per_channel = kind in BYTES and draw(st.booleans())
    x = image(draw, kind, depth_in, nchw)
    if type_ == Op.DEPTHWISE_CONV_2D:
        depth_out = depth_in * multiplier
        weights = weights_of(draw, kind, (1, rows, columns, depth_out), 3, per_channel)
    else:
        weights = weights_of(draw, kind, (depth_out, rows, columns, depth_in // groups), 0, per_channel)
    scale = 0 if per_channel else float(np.float32(x.scale) * np.float32(weights.scale))
    bias = bias_of(draw, kind, depth_out, scale)
    strides = [int32(draw(st.integers(1, 3))) for _ in range(2)]
    if draw(st.booleans()) or type_ == Op.TRANSPOSE_CONV_2D:
        padding = [int32(draw(st.integers(0, size - 1))) for size in (columns, columns, rows, rows)]
    else:
        padding = [int32(draw(st.sampled_from([SAME, VALID])))]
    activation, layout = int32(draw(st.integers(0, 3))), boolean(nchw)
    dilations = [int32(draw(st.integers(1, 2))) for _ in range(2)]
    rest = {
        Op.CONV_2D: [activation, layout, *dilations],
        Op.DEPTHWISE_CONV_2D: [int32(multiplier), activation, layout, *dilations],
        Op.GROUPED_CONV_2D: [int32(groups), activation, layout],
        Op.TRANSPOSE_CONV_2D: [activation, layout],
    }[type_]
    out = tensor(kind, (), 1.3, draw(st.integers(0, 100))) if kind in BYTES else tensor(kind)
    constant = frozenset({1, 2}) if draw(st.booleans()) else frozenset()
    return Case(
        type_, [(x, sample(rng(draw), x)), value(draw, weights), bias, *padding, *strides, *rest], [out], constant
    )


@samples(Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D, Op.L2_POOL_2D)
def pool(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *(BYTES if type_ != Op.L2_POOL_2D else ()))
    nchw = draw(st.booleans())
    x = image(draw, kind, channel_count(draw, nchw, 3), nchw)
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if draw(st.booleans()):
        padding = [int32(draw(st.integers(0, size - 1))) for size in (columns, columns, rows, rows)]
    else:
        padding = [int32(draw(st.sampled_from([SAME, VALID])))]
    rest = [
        int32(n) for n in (draw(st.integers(1, 3)), draw(st.integers(1, 3)), columns, rows, draw(st.integers(0, 3)))
    ]
    return Case(type_, [value(draw, x), *padding, *rest, boolean(nchw)], [like(x)])


@samples(Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR)
def resize(draw: Draw, type_: Op) -> Case:
    nchw = draw(st.booleans())
    x = image(draw, any_of(draw, *FLOATS, *BYTES), channel_count(draw, nchw, 2), nchw)
    flags = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    size = [int32(draw(st.integers(1, 9))) for _ in range(2)]
    return Case(type_, [value(draw, x), *size, boolean(nchw), *map(boolean, flags)], [like(x)])


@samples(Op.DEPTH_TO_SPACE, Op.SPACE_TO_DEPTH, Op.BATCH_TO_SPACE_ND, Op.SPACE_TO_BATCH_ND)
def space(draw: Draw, type_: Op) -> Case:
    kind, nchw, side = any_of(draw, *FLOATS, *BYTES), draw(st.booleans()), draw(st.integers(1, 3))
    n, h, w, c = (draw(st.integers(1, 3)) for _ in range(4))
    if type_ == Op.DEPTH_TO_SPACE:
        c *= side * side
    elif type_ == Op.BATCH_TO_SPACE_ND:
        n *= side * side
    else:
        h, w = h * side, w * side
    x = quantized(draw, kind, (n, c, h, w) if nchw else (n, h, w, c))
    if type_ in (Op.DEPTH_TO_SPACE, Op.SPACE_TO_DEPTH):
        return Case(type_, [value(draw, x), int32(side), boolean(nchw)], [like(x)])
    sides = [int_tensor([side, side])]
    if type_ == Op.SPACE_TO_BATCH_ND:
        sides.append(int_tensor([[side * draw(st.integers(0, 1)), 0], [0, side * draw(st.integers(0, 1))]]))
    return Case(type_, [value(draw, x), *sides, boolean(nchw)], [like(x)], frozenset({1, 2}))


# ---- Matrices, normalization -----------------------------------------------------------------------------


@samples(Op.FULLY_CONNECTED)
def fully_connected(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *BYTES)
    size, units = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    x = quantized(draw, kind, (*shapes(draw, 1, 3, 3), size))
    weights = quantized(draw, kind, (units, size))
    bias = bias_of(draw, kind, units, float(np.float32(x.scale) * np.float32(weights.scale)))
    out = tensor(kind, (), 1.1, draw(st.integers(0, 100))) if kind in BYTES else tensor(kind)
    constant = frozenset({1, 2}) if draw(st.booleans()) else frozenset()
    return Case(type_, [value(draw, x), value(draw, weights), bias, int32(draw(st.integers(0, 3)))], [out], constant)


@samples(Op.BATCH_MATMUL)
def batch_matmul(draw: Draw, type_: Op) -> Case:
    kind, batches = any_of(draw, *FLOATS, I8), shapes(draw, 1, 2, 3)
    rows, inner, columns = (draw(st.integers(1, 5)) for _ in range(3))
    adj_x, adj_y = draw(st.booleans()), draw(st.booleans())
    x = quantized(draw, kind, (*batches, *((inner, rows) if adj_x else (rows, inner))))
    y = quantized(draw, kind, (*batches, *((columns, inner) if adj_y else (inner, columns))))
    out = tensor(kind, (), 1.1, draw(st.integers(-50, 50))) if kind in BYTES else tensor(kind)
    return Case(type_, [value(draw, x), value(draw, y), boolean(adj_x), boolean(adj_y)], [out])


@samples(Op.RNN)
def rnn(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS)
    batches, size, units = (draw(st.integers(1, 4)) for _ in range(3))
    input_shapes = [(batches, size), (units, size), (units, units), (units,), (batches, units)]
    inputs = [value(draw, tensor(kind, shape)) for shape in input_shapes]
    return Case(type_, [*inputs, int32(draw(st.integers(0, 3)))], [tensor(kind), tensor(kind)])


def _zeros(*shape: int) -> Value:
    return tensor(F32, shape), np.zeros(shape, np.float32)


def _floats(draw: Draw, *shape: int) -> Value:
    return value(draw, tensor(F32, shape))


def _sequence(draw: Draw) -> tuple[bool, list[int], tuple[int, int, int]]:
    """Return whether a sequence is time-major, its steps and batches in order, and batches, input size and units."""
    steps, batches, size, units = (draw(st.integers(1, 4)) for _ in range(4))
    time_major = draw(st.booleans())
    return time_major, [steps, batches] if time_major else [batches, steps], (batches, size, units)


def _rnn_cell(draw: Draw, sizes: tuple[int, int, int]) -> list[Value]:
    batches, size, units = sizes
    return [_floats(draw, units, size), _floats(draw, units, units), _floats(draw, units), _zeros(batches, units)]


def _lstm_cell(draw: Draw, sizes: tuple[int, int, int]) -> list[Value]:
    """Return the weights of an LSTM cell without projection, with or without an input gate and peepholes."""
    _, size, units = sizes
    gate, peephole = draw(st.booleans()), draw(st.booleans())
    omitted: Value = (tensor(F32, (0,)), None)
    gates = [gate, True, True, True]
    return [
        *(_floats(draw, units, size) if each else omitted for each in gates),
        *(_floats(draw, units, units) if each else omitted for each in gates),
        *(_floats(draw, units) if peephole and each else omitted for each in gates[:3]),
        *(_floats(draw, units) if each else omitted for each in gates),
        omitted,
        omitted,
    ]


@samples(Op.UNIDIRECTIONAL_SEQUENCE_RNN)
def sequence_rnn(draw: Draw, type_: Op) -> Case:
    time_major, sequence, sizes = _sequence(draw)
    inputs = [_floats(draw, *sequence, sizes[1]), *_rnn_cell(draw, sizes)]
    activation = draw(st.sampled_from([0, 1, 2, 3, 4]))
    return Case(type_, [*inputs, int32(activation), int32(time_major)], [tensor(F32)], frozenset(range(1, 5)))


@samples(Op.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_rnn(draw: Draw, type_: Op) -> Case:
    time_major, sequence, sizes = _sequence(draw)
    merge, cross = draw(st.booleans()), draw(st.booleans())
    inputs = [_floats(draw, *sequence, sizes[1]), *_rnn_cell(draw, sizes), *_rnn_cell(draw, sizes)]
    omitted: Value = (tensor(F32, (0,)), None)
    inputs += [
        _floats(draw, *sequence, sizes[1]) if cross else omitted,
        *(_floats(draw, sizes[2], sizes[1]) if cross else omitted for _ in range(2)),
    ]
    scalars = [int32(draw(st.sampled_from([0, 1, 2, 3, 4]))), boolean(time_major), boolean(merge)]
    outputs = [tensor(F32) for _ in range(1 if merge else 2)]
    return Case(type_, [*inputs, *scalars], outputs, frozenset(range(1, 12)))


@samples(Op.UNIDIRECTIONAL_SEQUENCE_LSTM)
def sequence_lstm(draw: Draw, type_: Op) -> Case:
    time_major, sequence, sizes = _sequence(draw)
    batches, _, units = sizes
    cell = _lstm_cell(draw, sizes)
    omitted: Value = (tensor(F32, (0,)), None)
    norm, has_gate = draw(st.booleans()), cell[0][1] is not None
    norms = [_floats(draw, units) if norm and (has_gate or i > 0) else omitted for i in range(4)]
    scalars = [int32(draw(st.sampled_from([1, 2, 3, 4]))), scalar(draw, F32, 0, 2), scalar(draw, F32, 0, 2)]
    inputs = [_floats(draw, *sequence, sizes[1]), *cell, _zeros(batches, units), _zeros(batches, units)]
    constants = frozenset([*range(1, 20), *range(24, 28)])
    return Case(type_, [*inputs, *scalars, boolean(time_major), *norms], [tensor(F32)], constants)


@samples(Op.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_lstm(draw: Draw, type_: Op) -> Case:
    time_major, sequence, sizes = _sequence(draw)
    batches, size, units = sizes
    merge = time_major and draw(st.booleans())
    omitted: Value = (tensor(F32, (0,)), None)
    inputs = [_floats(draw, *sequence, size), *_lstm_cell(draw, sizes), *_lstm_cell(draw, sizes)]
    inputs += [*(_zeros(batches, units) for _ in range(4)), *([omitted] * 9)]
    inputs += [int32(draw(st.sampled_from([1, 2, 3, 4]))), float32(0), float32(0), boolean(merge), boolean(time_major)]
    outputs = [tensor(F32) for _ in range(1 if merge else 2)]
    return Case(type_, [*inputs, *([omitted] * 8)], outputs, frozenset(range(1, 39)))


@samples(Op.SOFTMAX, Op.LOG_SOFTMAX)
def softmax(draw: Draw, type_: Op) -> Case:
    x = quantized(
        draw,
        any_of(draw, *FLOATS, *(BYTES if type_ == Op.SOFTMAX else ())),
        shapes(draw, high=5 if type_ == Op.LOG_SOFTMAX else 4),
    )
    beta = scalar(draw, T(x.type) if x.type not in BYTES else F32, 0.5, 2)
    axis = draw(st.integers(-len(x.dimensions), len(x.dimensions) - 1))
    out = tensor(T(x.type), (), 1 / 256, 0 if x.type == U8 else -128) if x.scale else like(x)
    return Case(type_, [value(draw, x), beta, int32(axis)], [out])


@samples(Op.L2_NORMALIZATION)
def l2_normalization(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES), shapes(draw))
    axis = draw(st.integers(-len(x.dimensions), len(x.dimensions) - 1))
    out = tensor(T(x.type), (), 1 / 128, 128 if x.type == U8 else 0) if x.scale else like(x)
    return Case(type_, [value(draw, x), int32(axis)], [out])


@samples(Op.LOCAL_RESPONSE_NORMALIZATION)
def local_response(draw: Draw, type_: Op) -> Case:
    x = tensor(any_of(draw, *FLOATS), shapes(draw))
    numbers = [scalar(draw, T(x.type), *limits) for limits in ((0.5, 2), (0.0625, 1), (0.25, 1))]
    axis = draw(st.integers(-len(x.dimensions), len(x.dimensions) - 1))
    return Case(type_, [value(draw, x), int32(draw(st.integers(0, 6))), *numbers, int32(axis)], [like(x)])


@samples(Op.INSTANCE_NORMALIZATION)
def instance(draw: Draw, type_: Op) -> Case:
    nchw = draw(st.booleans())
    x = image(draw, any_of(draw, *FLOATS), channel_count(draw, nchw, 2), nchw)
    numbers = [scalar(draw, T(x.type), *limits) for limits in ((0.5, 2), (-1, 1), (0.125, 1))]
    return Case(type_, [value(draw, x), *numbers, boolean(nchw)], [like(x)])


# ---- Reductions ------------------------------------------------------------------------------------------


@samples(Op.MEAN, Op.REDUCE_MAX, Op.REDUCE_MIN, Op.REDUCE_SUM, Op.REDUCE_PROD, Op.REDUCE_ALL, Op.REDUCE_ANY)
def reduction(draw: Draw, type_: Op) -> Case:
    kinds: tuple[T, ...] = FLOATS
    if type_ in (Op.REDUCE_ALL, Op.REDUCE_ANY):
        kinds = (B8,)
    elif type_ not in (Op.REDUCE_SUM, Op.REDUCE_PROD):
        kinds = (*FLOATS, *BYTES)
    x = quantized(draw, any_of(draw, *kinds), shapes(draw))
    rank = len(x.dimensions)
    axes = draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank))
    keep = draw(st.booleans())
    return Case(
        type_,
        [value(draw, x), int_tensor(axes), int32(keep) if type_ == Op.MEAN else boolean(keep)],
        [like(x)],
        frozenset({1}),
    )


@samples(Op.ARGMAX, Op.ARGMIN)
def argument(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), shapes(draw))
    rank = len(x.dimensions)
    return Case(type_, [value(draw, x), int32(draw(st.integers(-rank, rank - 1)))], [tensor(I32)])


# ---- Moving elements -------------------------------------------------------------------------------------


@samples(Op.RESHAPE)
def reshape(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), shapes(draw))
    shape = draw(st.permutations([*x.dimensions, -1]))
    return Case(type_, [value(draw, x), int_tensor(shape)], [moved_output(draw, x)], frozenset({1}))


@samples(Op.SQUEEZE)
def squeeze(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES), shapes(draw, max_length=2))
    return Case(type_, [value(draw, x), (tensor(I32, (0,)), None)], [moved_output(draw, x)])


@samples(Op.EXPAND_DIMS)
def expand_dims(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), any_rank(draw, 7))
    rank = len(x.dimensions)
    return Case(type_, [value(draw, x), int32(draw(st.integers(-rank - 1, rank)))], [moved_output(draw, x)])


@samples(Op.TRANSPOSE)
def transpose(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES), shapes(draw))
    order = draw(st.permutations(range(len(x.dimensions))))
    return Case(type_, [value(draw, x), int_tensor(order)], [moved_output(draw, x)], frozenset({1}))


@samples(Op.RANK)
def rank(draw: Draw, type_: Op) -> Case:
    return Case(
        type_, [value(draw, quantized(draw, any_of(draw, F32, U8, I32, B8), any_rank(draw)))], [Operand(T.INT32)]
    )


@samples(Op.CONCATENATION, Op.PACK)
def concatenation(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *BYTES)
    shape = shapes(draw, high=3 if type_ == Op.PACK else 4)
    axis = draw(st.integers(0, len(shape) - 1))
    out = like(quantized(draw, kind))
    operands = []
    for _ in range(draw(st.integers(1, 4))):
        input_shape = shape
        if type_ == Op.CONCATENATION:
            input_shape = (*shape[:axis], draw(st.integers(1, 4)), *shape[axis + 1 :])
        operand = quantized(draw, kind, input_shape)
        if type_ == Op.PACK:
            operand = tensor(kind, input_shape, out.scale, out.zero_point)
        operands.append(value(draw, operand))
    return Case(type_, [*operands, int32(axis)] if type_ == Op.CONCATENATION else [int32(axis), *operands], [out])


@samples(Op.SPLIT)
def split(draw: Draw, type_: Op) -> Case:
    shape, count = shapes(draw), draw(st.integers(1, 3))
    axis = draw(st.integers(0, len(shape) - 1))
    whole = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), whole)
    return Case(type_, [value(draw, x), int32(axis), int32(count)], [moved_output(draw, x)] * count)


@samples(Op.TILE)
def tile(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), shapes(draw, max_length=3))
    return Case(
        type_,
        [value(draw, x), int_tensor([draw(st.integers(1, 3)) for _ in x.dimensions])],
        [moved_output(draw, x)],
        frozenset({1}),
    )


@samples(Op.SLICE)
def slice_(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), shapes(draw))
    begins = [draw(st.integers(0, n - 1)) for n in x.dimensions]
    sizes = [draw(st.sampled_from([-1, *range(1, n - b + 1)])) for n, b in zip(x.dimensions, begins, strict=True)]
    return Case(
        type_, [value(draw, x), int_tensor(begins), int_tensor(sizes)], [moved_output(draw, x)], frozenset({1, 2})
    )


@samples(Op.STRIDED_SLICE)
def strided_slice(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES), shapes(draw))
    begins, ends, steps, dropped = [], [], [], 0
    for i, n in enumerate(x.dimensions):
        begin = draw(st.integers(0, n - 1))
        if draw(st.booleans()):
            end, step = begin + 1, 1
            dropped |= draw(st.integers(0, 1)) << i
        elif draw(st.booleans()):
            end, step = draw(st.integers(begin + 1, n + 2)), draw(st.integers(1, 3))
        else:
            end, step = draw(st.sampled_from([-n - 3, *range(begin)])), -draw(st.integers(1, 3))
        begins.append(begin)
        ends.append(end)
        steps.append(step)
    vectors = [int_tensor(vector) for vector in (begins, ends, steps)]
    return Case(
        type_, [value(draw, x), *vectors, *map(int32, (0, 0, dropped))], [moved_output(draw, x)], frozenset({1, 2, 3})
    )


@samples(Op.GATHER)
def gather(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), shapes(draw))
    axis = draw(st.integers(0, len(x.dimensions) - 1))
    indices = rng(draw).integers(0, x.dimensions[axis], shapes(draw, 1, 1 if len(x.dimensions) == 4 else 2))
    return Case(type_, [value(draw, x), int32(axis), int_tensor(indices)], [moved_output(draw, x)])


@samples(Op.EMBEDDING_LOOKUP)
def embedding(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), shapes(draw, 2))
    return Case(
        type_,
        [int_tensor(rng(draw).integers(0, x.dimensions[0], shapes(draw, 1, 1))), value(draw, x)],
        [moved_output(draw, x)],
    )


@samples(Op.REVERSE)
def reverse(draw: Draw, type_: Op) -> Case:
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES, I32), shapes(draw))
    return Case(
        type_,
        [value(draw, x), int_tensor([draw(st.integers(0, len(x.dimensions) - 1))])],
        [moved_output(draw, x)],
        frozenset({1}),
    )


@samples(Op.CHANNEL_SHUFFLE)
def shuffle(draw: Draw, type_: Op) -> Case:
    shape, groups = shapes(draw), draw(st.integers(1, 3))
    axis = draw(st.integers(0, len(shape) - 1))
    x = quantized(draw, any_of(draw, *FLOATS, *BYTES), (*shape[:axis], shape[axis] * groups, *shape[axis + 1 :]))
    return Case(type_, [value(draw, x), int32(groups), int32(axis)], [moved_output(draw, x)])


@samples(Op.PAD, Op.PAD_V2, Op.MIRROR_PAD)
def pad(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, *BYTES)
    x = quantized(draw, kind, shapes(draw, high=4))
    limits = [n - 1 for n in x.dimensions] if type_ == Op.MIRROR_PAD else [3 for _ in x.dimensions]
    paddings = [[draw(st.integers(0, limit)), draw(st.integers(0, limit))] for limit in limits]
    rest: list[Value] = []
    if type_ == Op.MIRROR_PAD:
        rest = [int32(draw(st.integers(0, 1)))]
    elif type_ == Op.PAD_V2:
        rest = [int32(draw(st.integers(0, 100)))] if kind in BYTES else [scalar(draw, kind, -2, 2)]
    return Case(type_, [value(draw, x), int_tensor(paddings), *rest], [moved_output(draw, x)], frozenset({1}))


@samples(Op.FILL)
def fill(draw: Draw, type_: Op) -> Case:
    kind = any_of(draw, *FLOATS, I32)
    number = int32(draw(st.integers(-9, 9))) if kind == I32 else scalar(draw, kind, -2, 2)
    return Case(type_, [int_tensor(shapes(draw)), number], [tensor(kind)], frozenset({0}))
