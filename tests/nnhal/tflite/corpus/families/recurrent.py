"""Recurrent layers. Their states are variables, which are zeros in the first run."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from tests.nnhal.tflite.build import Op, Tensor, options
from tests.nnhal.tflite.corpus.cases import SampledTensor, constant, models, tensor

_BATCHES, _STEPS, _INPUTS, _UNITS, _OUTPUTS = 2, 4, 3, 5, 4
TANH, RELU = 4, 1


def weights(*shape: int) -> SampledTensor:
    """Return constant weights between -1 and 1."""
    return constant(tensor("FLOAT32", *shape, low=-1, high=1))


def hybrid_weights(*shape: int) -> SampledTensor:
    """Return constant 8-bit weights between -1 and 1."""
    return constant(tensor("INT8", *shape, scale=1 / 127, zero_point=0))


def state(*shape: int, type_: str = "FLOAT32", **more: Any) -> SampledTensor:
    """Return a variable."""
    return tensor(type_, *shape, isVariable=True, **more)


def cell(
    inputs: int, *, input_gate: bool, peephole: bool, projection: str, hybrid: bool = False
) -> list[Tensor | None]:
    """Return the weights of an LSTM cell.

    Args:
        inputs: the size of the input.
        input_gate: whether there is an input gate.
        peephole: whether gates see the state of the cell.
        projection: "" for none, "plain" or "bias".
        hybrid: whether matrices have 8 bits.
    """
    outputs = _OUTPUTS if projection else _UNITS
    matrix = hybrid_weights if hybrid else weights
    gates = [input_gate, True, True, True]
    return [
        *(matrix(_UNITS, inputs) if gate else None for gate in gates),
        *(matrix(_UNITS, outputs) if gate else None for gate in gates),
        *(matrix(_UNITS) if peephole and (input_gate or i > 0) else None for i in range(3)),
        *(weights(_UNITS) if gate else None for gate in gates),
        matrix(_OUTPUTS, _UNITS) if projection else None,
        weights(_OUTPUTS) if projection == "bias" else None,
    ]


_CELLS: list[dict[str, Any]] = [
    {"input_gate": gate, "peephole": peephole, "projection": projection}
    for gate, peephole, projection in product((True, False), (False, True), ("", "plain", "bias"))
]
_PLAIN = _CELLS[0]
_CLIPS = [(0.0, 0.0), (0.5, 0.0), (0.0, 0.3)]


def _lstm_states(projection: object) -> list[Tensor]:
    return [state(_BATCHES, _OUTPUTS if projection else _UNITS), state(_BATCHES, _UNITS)]


@models("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(name: str) -> Iterator[Op]:
    """Yield all optional parts, clipping, activations, layouts and 8-bit weights."""
    kind = "LSTM" if name == "LSTM" else "UnidirectionalSequenceLSTM"
    layouts: list[dict[str, Any]] = [{}] if name == "LSTM" else [{"timeMajor": True}, {"timeMajor": False}]
    for layout in layouts:
        sequence = [_STEPS, _BATCHES] if layout.get("timeMajor") else [_BATCHES, _STEPS]
        data = tensor("FLOAT32", *([_BATCHES] if name == "LSTM" else sequence), _INPUTS)
        for parts, hybrid in product(_CELLS, (False, True)):
            inputs = [data, *cell(_INPUTS, **parts, hybrid=hybrid), *_lstm_states(parts["projection"])]
            table = options(kind, fusedActivationFunction=TANH, **layout)
            yield Op(name, inputs, [tensor("FLOAT32")], table)
            norms = [weights(_UNITS) if parts["input_gate"] or i > 0 else None for i in range(4)]
            yield Op(name, [*inputs, *norms], [tensor("FLOAT32")], table)
        for cell_clip, proj_clip in _CLIPS:
            parts = _PLAIN | {"projection": "plain"}
            table = options(kind, fusedActivationFunction=TANH, cellClip=cell_clip, projClip=proj_clip, **layout)
            inputs = [data, *cell(_INPUTS, **parts), *_lstm_states("plain")]
            yield Op(name, inputs, [tensor("FLOAT32")], table)
        for activation in (0, 1, 2, 3, 5):
            table = options(kind, fusedActivationFunction=activation, **layout)
            yield Op(name, [data, *cell(_INPUTS, **_PLAIN), *_lstm_states("")], [tensor("FLOAT32")], table)


@models("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(name: str) -> Iterator[Op]:
    """Yield all optional parts, auxiliary inputs, merged outputs, layouts and 8-bit weights."""
    for time_major, merge in product((True, False), repeat=2):
        sequence = [_STEPS, _BATCHES] if time_major else [_BATCHES, _STEPS]
        data = tensor("FLOAT32", *sequence, _INPUTS)
        table = options(
            "BidirectionalSequenceLSTM", fusedActivationFunction=TANH, timeMajor=time_major, mergeOutputs=merge
        )
        outputs = [tensor("FLOAT32") for _ in range(1 if merge else 2)]
        for parts, hybrid in product(_CELLS, (False, True)):
            both = [*cell(_INPUTS, **parts, hybrid=hybrid), *cell(_INPUTS, **parts, hybrid=hybrid)]
            states = [*_lstm_states(parts["projection"]), *_lstm_states(parts["projection"])]
            yield Op(name, [data, *both, *states, *([None] * 9)], outputs, table)
        both = [*cell(_INPUTS, **_PLAIN), *cell(_INPUTS, **_PLAIN)]
        states = [*_lstm_states(""), *_lstm_states("")]
        auxiliary = tensor("FLOAT32", *sequence, _INPUTS)
        yield Op(name, [data, *both, *states, auxiliary, *([None] * 8)], outputs, table)
        more = [weights(_UNITS, _INPUTS) for _ in range(8)]
        yield Op(name, [data, *both, *states, auxiliary, *more], outputs, table)


@models("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN")
def rnn(name: str) -> Iterator[Op]:
    """Yield activations, layouts and 8-bit weights."""
    kind = "RNN" if name == "RNN" else "SequenceRNN"
    layouts: list[dict[str, Any]] = [{}] if name == "RNN" else [{"timeMajor": True}, {"timeMajor": False}]
    for layout, matrix, activation in product(layouts, (weights, hybrid_weights), (0, 1, 2, 3, 4, 5)):
        sequence = [_STEPS, _BATCHES] if layout.get("timeMajor") else [_BATCHES, _STEPS]
        data = tensor("FLOAT32", *([_BATCHES] if name == "RNN" else sequence), _INPUTS)
        inputs = [data, *_rnn_cell(matrix), state(_BATCHES, _UNITS)]
        table = options(kind, fusedActivationFunction=activation, **layout)
        yield Op(name, inputs, [tensor("FLOAT32")], table)


def _rnn_cell(matrix: Any) -> list[Tensor]:
    return [matrix(_UNITS, _INPUTS), matrix(_UNITS, _UNITS), weights(_UNITS)]


@models("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(name: str) -> Iterator[Op]:
    """Yield auxiliary inputs, merged outputs, layouts and 8-bit weights."""
    for time_major, merge, matrix in product((True, False), (True, False), (weights, hybrid_weights)):
        sequence = [_STEPS, _BATCHES] if time_major else [_BATCHES, _STEPS]
        table = options(
            "BidirectionalSequenceRNN", fusedActivationFunction=TANH, timeMajor=time_major, mergeOutputs=merge
        )
        outputs = [tensor("FLOAT32") for _ in range(1 if merge else 2)]
        for auxiliary, weighted in ((False, False), (True, False), (True, True)):
            extra: Sequence[Tensor | None] = [
                tensor("FLOAT32", *sequence, _INPUTS) if auxiliary else None,
                *(matrix(_UNITS, _INPUTS) if weighted else None for _ in range(2)),
            ]
            inputs: list[Tensor] = [tensor("FLOAT32", *sequence, _INPUTS)]
            for _ in range(2):
                inputs += [*_rnn_cell(matrix), state(_BATCHES, _UNITS)]
            yield Op(name, [*inputs, *extra], outputs, table)


@models("SVDF")
def svdf(name: str) -> Iterator[Op]:
    """Yield ranks, activations, with and without bias, 8-bit weights, and the quantized kernel."""
    memory = 6
    for rank, activation, has_bias, matrix in product((1, 2), (0, 1, 3), (True, False), (weights, hybrid_weights)):
        filters = _UNITS * rank
        inputs = [tensor("FLOAT32", _BATCHES, _INPUTS), matrix(filters, _INPUTS), matrix(filters, memory)]
        bias = weights(_UNITS) if has_bias else None
        table = options("SVDF", rank=rank, fusedActivationFunction=activation)
        yield Op(name, [*inputs, bias, state(_BATCHES, memory * filters)], [tensor("FLOAT32")], table)
    data = tensor("INT8", _BATCHES, _INPUTS, scale=0.02)
    feature = constant(tensor("INT8", _UNITS, _INPUTS, scale=0.01, zero_point=0))
    time = constant(tensor("INT16", _UNITS, memory, scale=0.0005))
    bias = constant(tensor("INT32", _UNITS, scale=0.0005 * 0.002, zero_point=0))
    memory_state = state(_BATCHES, memory * _UNITS, type_="INT16", scale=0.002)
    table = options("SVDF", rank=1, fusedActivationFunction=1)
    yield Op(name, [data, feature, time, bias, memory_state], [tensor("INT8", scale=0.05)], table)
