"""Kernels of LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM: one cell step for all."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from driver.backends.reference.kernel import Floats, floats, kernel, narrowed
from driver.backends.reference.sequence import (
    Activation,
    activation_of,
    both_directions,
    laid_out_over_time,
    over_time,
    sigmoid,
    steps,
)
from driver.operations.call import Call
from driver.operations.lstm import BIASES, gates_of, lstm_linking
from driver.operations.sequence import Linking
from nnhal.types import AnyArray, OperationType


@dataclass(frozen=True, slots=True)
class _Cell:
    """The weights of a cell. Products of all its gates are computed as one, gate after gate along the last axis.

    Attributes:
        gates: names of the gates; "input" is absent with CIFG.
        recurrent: [output_size, gates * units].
        peephole, norm: by gate, [units]; empty without.
        bias: by gate, [units].
        projection: weights [units, output_size] and bias, or None.
    """

    gates: tuple[str, ...]
    recurrent: Floats
    peephole: dict[str, Floats]
    norm: dict[str, Floats]
    bias: dict[str, Floats]
    projection: tuple[Floats, Floats] | None
    act: Activation
    cell_clip: float
    proj_clip: float

    def step(self, inputs: Floats, output: Floats, state: Floats) -> tuple[Floats, Floats]:
        """One time step.

        Args:
            inputs: products of what the cell reads besides its states, [batches, gates * units].
            output: h of the step before, [batches, output_size].
            state: C of the step before, [batches, units].

        Returns:
            The new h and C.
        """
        sums = dict(zip(self.gates, np.split(inputs + output @ self.recurrent, len(self.gates), axis=-1), strict=True))
        forget = sigmoid(self._gate("forget", sums, state))
        share = sigmoid(self._gate("input", sums, state)) if "input" in sums else 1 - forget
        state = _clipped(forget * state + share * self.act(self._gate("cell", sums, state)), self.cell_clip)
        hidden = sigmoid(self._gate("output", sums, state)) * self.act(state)
        if self.projection is not None:
            weights, bias = self.projection
            hidden = _clipped(hidden @ weights + bias, self.proj_clip)
        return hidden, state

    def _gate(self, gate: str, sums: dict[str, Floats], state: Floats) -> Floats:
        """A gate before its activation: products, peephole, layer normalisation, bias."""
        value = sums[gate]
        if gate in self.peephole:
            value = value + self.peephole[gate] * state
        if gate in self.norm:
            value = _normalized(value) * self.norm[gate]
        return value + self.bias[gate]


def _clipped(value: AnyArray, clip: float) -> Floats:
    return np.clip(value, np.float32(-clip), np.float32(clip)) if clip > 0 else value


def _normalized(value: Floats) -> Floats:
    """Mean 0 and variance 1 over the units of each batch."""
    centred = value - value.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    out: Floats = centred / np.sqrt(variance + np.float32(1e-8))
    return out


_NO_BIAS = np.zeros(1, np.float32)


def _stacked(call: Call, names: list[str]) -> Floats:
    """Weights [units, size] of all gates, ready for a product with rows: [size, gates * units]."""
    return call.once(
        names[0], lambda: np.ascontiguousarray(np.concatenate([floats(call, name) for name in names]).T), *names
    )


def _given(call: Call, pattern: str, gates: Iterable[str]) -> dict[str, Floats]:
    """What is given of an optional tensor, by gate."""
    return {gate: floats(call, pattern.format(gate)) for gate in gates if call.has(pattern.format(gate))}


def _cell(call: Call, prefix: str) -> _Cell:
    gates = gates_of(call, prefix)
    projection = None
    if call.has(f"{prefix}projection_weights"):
        bias = f"{prefix}projection_bias"
        projection = (floats(call, f"{prefix}projection_weights").T, floats(call, bias) if call.has(bias) else _NO_BIAS)
    return _Cell(
        gates,
        _stacked(call, [f"{prefix}recurrent_to_{gate}_weights" for gate in gates]),
        _given(call, prefix + "cell_to_{}_weights", gates),
        _given(call, prefix + "{}_layer_norm_weights", gates),
        {gate: floats(call, prefix + BIASES[gate]) for gate in gates},
        projection,
        activation_of(call),
        call.number("cell_clip"),
        call.number("proj_clip"),
    )


def _products(call: Call, sequence: Floats, pattern: str, prefix: str = "") -> Floats:
    """A sequence [time, batches, size] times the weights of all gates: [time, batches, gates * units]."""
    return sequence @ _stacked(call, [prefix + pattern.format(gate) for gate in gates_of(call, prefix)])


def _layer(call: Call, inputs: Floats, prefix: str = "", *, backward: bool = False) -> tuple[Floats, Floats, Floats]:
    """Runs a cell over its products with a sequence: its output at each time step, and its last h and C."""
    cell = _cell(call, prefix)
    output, state = floats(call, f"{prefix}output_state_in"), floats(call, f"{prefix}cell_state_in")
    out = np.empty((len(inputs), *output.shape), np.float32)
    for step in steps(len(inputs), backward):
        output, state = cell.step(inputs[step], output, state)
        out[step] = output
    return out, output, state


@kernel(OperationType.LSTM)
def lstm(call: Call) -> list[AnyArray]:
    """One time step. The scratch buffer, which has no meaning, is zeros."""
    inputs = _products(call, floats(call, "input")[np.newaxis], "input_to_{}_weights")
    _, output, state = _layer(call, inputs)
    hidden = narrowed(call, output)
    return [narrowed(call, np.zeros_like(inputs[0])), hidden, narrowed(call, state), hidden]


@kernel(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(call: Call) -> list[AnyArray]:
    """The same cell at each time step."""
    out, *states = _layer(call, _products(call, over_time(call, "input"), "input_to_{}_weights"))
    outputs = [laid_out_over_time(call, out), *(narrowed(call, state) for state in states)]
    return outputs[: len(call.view.operation.outputs)]


@kernel(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(call: Call) -> list[AnyArray]:
    """One cell forwards and one backwards in time."""
    mode = lstm_linking(call)
    read = {"fw_": "input", "bw_": "aux_input" if mode == Linking.PARALLEL else "input"}
    layers = {}
    for prefix, name in read.items():
        inputs = _products(call, over_time(call, name), "input_to_{}_weights", prefix)
        if mode == Linking.CROSS:
            inputs += _products(call, over_time(call, "aux_input"), "aux_input_to_{}_weights", prefix)
        layers[prefix] = _layer(call, inputs, prefix, backward=prefix == "bw_")
    out, *states = layers["fw_"]
    back_out, *back_states = layers["bw_"]
    return both_directions(call, out, back_out, [*states, *back_states])
