"""Recurrent layers. Their states are variables, which the caller must reset before each execution."""

from collections.abc import Sequence
from math import frexp

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, Shape, rule, scale, zero_point

_MAX_CLIP = 2.0**60


def _lstm_types(weights: str) -> str:
    """Return the types of the inputs of an LSTM, up to the projection."""
    gates, peephole = f"{weights}? {weights} {weights} {weights}", f"{weights}? {weights}? {weights}?"
    return f"f32 {gates} {gates} {peephole} f32? f32 f32 f32 {weights}? f32?"


def _all_or_none(op: OperatorCheck, first: int, indices: Sequence[int]) -> bool:
    """Return whether inputs are present. Some of them without the others are an error."""
    present = [op.optional(first + index) is not None for index in indices]
    op.require(all(present) or not any(present), f"inputs {[first + i for i in indices]} must be present together")
    return any(present)


def _check_cell(op: OperatorCheck, first: int, depth: int, batches: int, states: tuple[int, int]) -> int:
    """Check the weights and states of one direction of an LSTM, and return its number of outputs.

    Args:
        op: the operator.
        first: index of its first weights.
        depth: size of the input.
        batches: number of batches.
        states: indices of the states of the output and of the cells.
    """
    cells, size = op.shape(first + 1, rank=2)[0], op.shape(first + 5, rank=2)[1]
    coupled = not _all_or_none(op, first, [0, 4, 11])
    peephole = _all_or_none(op, first, [9, 10])
    op.require(
        (op.optional(first + 8) is not None) == (peephole and not coupled), f"input {first + 8} is present or missing"
    )
    for index in range(4):
        op.input_shape(first + index, (cells, depth))
        op.input_shape(first + 4 + index, (cells, size))
        op.input_shape(first + 11 + index, (cells,))
    for index in range(8, 11):
        op.input_shape(first + index, (cells,))
    if op.optional(first + 15) is None:
        op.require(size == cells, f"{cells} cells give {size} outputs without a projection")
        op.require(op.optional(first + 16) is None, f"input {first + 16} is present without a projection")
    op.input_shape(first + 15, (size, cells))
    op.input_shape(first + 16, (size,))
    op.input_shape(states[0], (batches, size))
    op.input_shape(states[1], (batches, cells))
    return size


def _check_options(op: OperatorCheck) -> None:
    op.activation()
    op.require_range("cell_clip", op.float_option("cell_clip"), 0, _MAX_CLIP)
    op.require_range("proj_clip", op.float_option("proj_clip"), 0, _MAX_CLIP)


def _check_normalization(op: OperatorCheck, cells: int) -> None:
    """Check the coefficients of layer normalization of an LSTM with one direction."""
    normalized = _all_or_none(op, 0, [21, 22, 23])
    coupled = op.optional(1) is None
    op.require((op.optional(20) is not None) == (normalized and not coupled), "input 20 is present or missing")
    for index in range(20, 24):
        op.input_shape(index, (cells,))


def _sequence(op: OperatorCheck, shape: Shape) -> int:
    """Return the number of batches of a sequence."""
    return shape[1] if op.option("time_major") else shape[0]


_LSTM8 = "i8 " + "i8 " * 8 + "i16? " * 3 + "i32 " * 4 + "i8? i32? i8 i16 i16? i16? i16? i16? -> i8"
"""Types of an LSTM in 8 bits, whose cells have 16 bits."""
_INTERMEDIATES = 5
_GATE_SCALE = 2.0**-12
_CELL_SHIFTS = range(-15, -8)
"""Binary logarithms of the scales of cells for which the kernel has a hyperbolic tangent."""


def _check_quantized_cell(op: OperatorCheck) -> None:
    """Check the scales of an LSTM in 8 bits. Peepholes, projections and normalization are not supported."""
    for index in (9, 10, 11, 16, 17, 20, 21, 22, 23):
        op.require(op.optional(index) is None, f"input {index} is present; it is not supported in 8 bits")
    tensors, intermediates = op.model.graphs[op.graph].tensors, op.operator.intermediates
    op.require(len(intermediates) == _INTERMEDIATES, f"intermediates has {len(intermediates)} tensors; expected 5")
    hidden = tensors[intermediates[-1]].quantization
    if hidden is None or len(hidden.scales) != 1:
        op.fail("the last tensor of intermediates has no scale of its own")
    fraction, exponent = frexp(scale(op.input(19)))
    op.require(fraction == 0.5, f"input 19 has scale {scale(op.input(19)):g}; expected a power of 2")
    op.require(exponent - 1 in _CELL_SHIFTS, f"input 19 has scale 2^{exponent - 1}; expected 2^-15 to 2^-9")
    for index in range(1, 9):
        source = op.input(0) if index < 5 else op.input(18)
        op.require(zero_point(op.input(index)) == 0, f"input {index} has zero point {zero_point(op.input(index))}")
        op.multiplier(f"scale of input {index} in its gate", scale(source) * scale(op.input(index)) / _GATE_SCALE)
    op.multiplier("scale of the hidden state", 2.0**-30 / float(hidden.scales[0]))


_LSTM = [f"{_lstm_types(weights)} f32 f32 f32? f32? f32? f32? -> f32" for weights in ("f32", "i8", "u8")]


@rule("LSTM", types=_LSTM, options="LSTMOptions", states=[18, 19])
def lstm(op: OperatorCheck) -> None:
    """Check one step of an LSTM."""
    batches, depth = op.shape(0, rank=2)
    op.require(op.option("kernel_type") == 0, f"kernel_type is {op.option('kernel_type')}; expected 0")
    _check_options(op)
    size = _check_cell(op, 1, depth, batches, (18, 19))
    _check_normalization(op, op.input(2).shape[0])
    op.output_shape([batches, size])
    op.work += batches * sum(tensor.elements for tensor in op.inputs if tensor is not None)


@rule(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    types=[*_LSTM, _LSTM8],
    options="UnidirectionalSequenceLSTMOptions",
    states=[18, 19],
    intermediates=_INTERMEDIATES,
)
def sequence_lstm(op: OperatorCheck) -> None:
    """Check an LSTM over a sequence."""
    shape = op.shape(0, rank=3)
    op.require(not op.option("diagonal_recurrent_tensors"), "diagonal_recurrent_tensors is set; it is not supported")
    _check_options(op)
    _check_cell(op, 1, shape[2], _sequence(op, shape), (18, 19))
    if op.input(0).type == "INT8":
        _check_quantized_cell(op)
    else:
        op.require(not op.operator.intermediates, "intermediates are present; expected them in 8 bits only")
        _check_normalization(op, op.input(2).shape[0])
    op.work += shape[0] * shape[1] * sum(tensor.elements for tensor in op.inputs if tensor is not None)


def _bidirectional_types(weights: str, outputs: str) -> str:
    direction = _lstm_types(weights).removeprefix("f32 ")
    return f"f32 {direction} {direction} f32 f32 f32 f32 {'f32? ' * 9}-> {outputs}"


@rule(
    "BIDIRECTIONAL_SEQUENCE_LSTM",
    types=[_bidirectional_types(weights, outputs) for weights in ("f32", "i8", "u8") for outputs in ("f32", "f32 f32")],
    options="BidirectionalSequenceLSTMOptions",
    states=[35, 36, 37, 38],
)
def bidirectional_lstm(op: OperatorCheck) -> None:
    """Check LSTMs over a sequence in both directions. The kernel does not write all of a merged batch-major output."""
    shape = op.shape(0, rank=3)
    _check_options(op)
    batches = _sequence(op, shape)
    for index in range(39, 48):
        op.require(op.optional(index) is None, f"input {index} is present; it is not supported")
    forward = _check_cell(op, 1, shape[2], batches, (35, 36))
    backward = _check_cell(op, 18, shape[2], batches, (37, 38))
    _check_directions(op, shape, forward, backward)
    op.work += shape[0] * shape[1] * sum(tensor.elements for tensor in op.inputs if tensor is not None)


def _check_directions(op: OperatorCheck, shape: Shape, forward: int, backward: int) -> None:
    """Check the outputs of both directions."""
    merged = bool(op.option("merge_outputs"))
    op.require(len(op.outputs) == 2 - merged, f"outputs has {len(op.outputs)} tensors; expected {2 - merged}")
    if merged:
        op.require(op.option("time_major"), "merge_outputs is set without time_major; it is not supported")
        op.output_shape([*shape[:2], forward + backward])
    else:
        op.output_shape([*shape[:2], forward])
        op.output_shape([*shape[:2], backward], 1)


def _check_rnn(op: OperatorCheck, first: int, depth: int, batches: int) -> int:
    """Check the weights and the state of one direction of an RNN, and return its number of units."""
    units = op.shape(first, rank=2)[0]
    op.input_shape(first, (units, depth))
    op.input_shape(first + 1, (units, units))
    op.input_shape(first + 2, (units,))
    op.input_shape(first + 3, (batches, units))
    return units


_RNN = [f"f32 {weights} {weights} f32 f32 -> f32" for weights in ("f32", "i8", "u8")]


@rule("RNN", types=_RNN, options="RNNOptions", states=[4])
def rnn(op: OperatorCheck) -> None:
    """Check one step of an RNN."""
    batches, depth = op.shape(0, rank=2)
    op.activation()
    _check_rnn(op, 1, depth, batches)
    op.work += batches * sum(op.input(index).elements for index in (1, 2))


@rule("UNIDIRECTIONAL_SEQUENCE_RNN", types=_RNN, options="SequenceRNNOptions", states=[4])
def sequence_rnn(op: OperatorCheck) -> None:
    """Check an RNN over a sequence."""
    shape = op.shape(0, rank=3)
    op.activation()
    _check_rnn(op, 1, shape[2], _sequence(op, shape))
    op.work += shape[0] * shape[1] * sum(op.input(index).elements for index in (1, 2))


@rule(
    "BIDIRECTIONAL_SEQUENCE_RNN",
    types=[f"f32 {'f32 ' * 8}f32? f32? f32? -> f32", f"f32 {'f32 ' * 8}f32? f32? f32? -> f32 f32"],
    options="BidirectionalSequenceRNNOptions",
    states=[4, 8],
)
def bidirectional_rnn(op: OperatorCheck) -> None:
    """Check RNNs over a sequence in both directions. The kernel writes out of bounds if the weights are quantized."""
    shape = op.shape(0, rank=3)
    op.activation()
    for index in range(9, 12):
        op.require(op.optional(index) is None, f"input {index} is present; it is not supported")
    batches = _sequence(op, shape)
    _check_directions(op, shape, _check_rnn(op, 1, shape[2], batches), _check_rnn(op, 5, shape[2], batches))
    op.work += shape[0] * shape[1] * sum(op.input(index).elements for index in (1, 2, 5, 6))


@rule(
    "SVDF",
    types=[
        "f32 f32 f32 f32? f32 -> f32",
        "f32 i8|u8 i8|u8 f32? f32 -> f32",
        "i8 i8 i16 i32? i16 -> i8",
    ],
    options="SVDFOptions",
    states=[4],
)
def svdf(op: OperatorCheck) -> None:
    """Check one step of a layer of rank-decomposed filters over time."""
    batches, depth = op.shape(0, rank=2)
    filters, memory = op.shape(2, rank=2)
    op.activation()
    op.positive("rank")
    rank = op.option("rank")
    op.require(filters % rank == 0, f"rank is {rank}; expected a divisor of {filters}")
    op.input_shape(1, (filters, depth))
    op.input_shape(3, (filters // rank,))
    op.input_shape(4, (batches, memory * filters))
    if op.is_quantized:
        first = scale(op.input(0)) * scale(op.input(1)) / scale(op.input(4))
        second = scale(op.input(4)) * scale(op.input(2)) / scale(op.outputs[0])
        op.multiplier("input scale * weight scale / state scale", first, 2.0**-31, 2.0**8)
        op.multiplier("state scale * time weight scale / output scale", second, 2.0**-31, 2.0**8)
    op.work += batches * filters * (depth + memory)
