"""Kernels of LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM, which share one cell step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import Floats, as_float32, kernel, matrix_product, to_output_type
from nnhal_driver.backends.reference.sequence import (
    Activation,
    activation_function,
    bidirectional_outputs,
    sigmoid,
    time_major,
    time_steps,
    to_sequence_layout,
)
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.layers.lstm import BIASES, cell_gates, lstm_linking_mode
from nnhal_driver.operations.sequence import Linking


@dataclass(frozen=True, slots=True)
class _CellWeights:
    """Weights of a cell. The products of all gates are computed at once, concatenated along the last axis.

    Attributes:
        gates: names of the gates; "input" is absent with CIFG.
        recurrent: [output_size, gates * units].
        peephole: weights by gate, [units]; empty without peepholes.
        norm: layer normalization weights by gate, [units]; empty without layer normalization.
        bias: by gate, [units].
        projection: weights [units, output_size] and bias, or None.
        multiply: multiplies two matrices.
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
    multiply: Callable[[Floats, Floats], Floats]

    def step(self, inputs: Floats, output: Floats, state: Floats) -> tuple[Floats, Floats]:
        """Return h, [batches, output_size], and C, [batches, units], one time step later.

        `inputs` are the products of the cell's inputs with their weights, [batches, gates * units].
        """
        products = np.split(inputs + self.multiply(output, self.recurrent), len(self.gates), axis=-1)
        sums = dict(zip(self.gates, products, strict=True))
        forget = sigmoid(self._gate("forget", sums, state))
        share = sigmoid(self._gate("input", sums, state)) if "input" in sums else 1 - forget
        state = _clip(forget * state + share * self.act(self._gate("cell", sums, state)), self.cell_clip)
        hidden = sigmoid(self._gate("output", sums, state)) * self.act(state)
        if self.projection is not None:
            weights, bias = self.projection
            hidden = _clip(self.multiply(hidden, weights) + bias, self.proj_clip)
        return hidden, state

    def _gate(self, gate: str, sums: dict[str, Floats], state: Floats) -> Floats:
        """Return a gate before its activation, from products, peephole, layer normalization and bias."""
        value = sums[gate]
        if gate in self.peephole:
            value = value + self.peephole[gate] * state
        if gate in self.norm:
            value = _normalize(value) * self.norm[gate]
        return value + self.bias[gate]


def _clip(value: AnyArray, clip: float) -> Floats:
    return np.clip(value, np.float32(-clip), np.float32(clip)) if clip > 0 else value


def _normalize(value: Floats) -> Floats:
    """Normalize to mean 0 and variance 1 over the units of each batch."""
    centered = value - value.mean(axis=-1, keepdims=True)
    variance = np.square(centered).mean(axis=-1, keepdims=True)
    normalized: Floats = centered / np.sqrt(variance + np.float32(1e-8))
    return normalized


_NO_BIAS = np.zeros(1, np.float32)


def _stack_weights(call: OperationCall, names: list[str]) -> Floats:
    """Stack the weights [units, size] of all gates and transpose them: [size, gates * units]."""
    return call.memoize_constant(
        names[0], lambda: np.ascontiguousarray(np.concatenate([as_float32(call, name) for name in names]).T), *names
    )


def _optional_weights(call: OperationCall, pattern: str, gates: Iterable[str]) -> dict[str, Floats]:
    """Return the values of an optional tensor that are present, by gate."""
    return {gate: as_float32(call, pattern.format(gate)) for gate in gates if call.has(pattern.format(gate))}


def _cell(call: OperationCall, prefix: str) -> _CellWeights:
    gates = cell_gates(call, prefix)
    projection = None
    if call.has(f"{prefix}projection_weights"):
        bias = f"{prefix}projection_bias"
        projection = (
            as_float32(call, f"{prefix}projection_weights").T,
            as_float32(call, bias) if call.has(bias) else _NO_BIAS,
        )
    return _CellWeights(
        gates,
        _stack_weights(call, [f"{prefix}recurrent_to_{gate}_weights" for gate in gates]),
        _optional_weights(call, prefix + "cell_to_{}_weights", gates),
        _optional_weights(call, prefix + "{}_layer_norm_weights", gates),
        {gate: as_float32(call, prefix + BIASES[gate]) for gate in gates},
        projection,
        activation_function(call),
        call.number("cell_clip"),
        call.number("proj_clip"),
        partial(matrix_product, call),
    )


def _products(call: OperationCall, sequence: Floats, pattern: str, prefix: str = "") -> Floats:
    """Multiply a sequence [time, batches, size] by the weights of all gates: [time, batches, gates * units]."""
    weights = _stack_weights(call, [prefix + pattern.format(gate) for gate in cell_gates(call, prefix)])
    return matrix_product(call, sequence, weights)


def _run_layer(
    call: OperationCall, inputs: Floats, prefix: str = "", *, backward: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Run a cell over its products with a sequence. Return its output at each time step, and its last h and C."""
    cell = _cell(call, prefix)
    output, state = as_float32(call, f"{prefix}output_state_in"), as_float32(call, f"{prefix}cell_state_in")
    out = np.empty((len(inputs), *output.shape), np.float32)
    for step in time_steps(call, len(inputs), backward):
        output, state = cell.step(inputs[step], output, state)
        out[step] = output
    return out, output, state


@kernel(OperationType.LSTM)
def lstm(call: OperationCall) -> list[AnyArray]:
    """Compute one time step. The scratch buffer, which has no meaning, is filled with zeros."""
    inputs = _products(call, as_float32(call, "input")[np.newaxis], "input_to_{}_weights")
    _, output, state = _run_layer(call, inputs)
    hidden = to_output_type(call, output)
    return [to_output_type(call, np.zeros_like(inputs[0])), hidden, to_output_type(call, state), hidden]


@kernel(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(call: OperationCall) -> list[AnyArray]:
    """Run one cell over all time steps."""
    out, *states = _run_layer(call, _products(call, time_major(call, "input"), "input_to_{}_weights"))
    outputs = [to_sequence_layout(call, out), *(to_output_type(call, state) for state in states)]
    return outputs[: len(call.view.operation.outputs)]


@kernel(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(call: OperationCall) -> list[AnyArray]:
    """Run one cell forwards and one backwards in time."""
    mode = lstm_linking_mode(call)
    sources = {"fw_": "input", "bw_": "aux_input" if mode == Linking.PARALLEL else "input"}
    layers = {}
    for prefix, name in sources.items():
        inputs = _products(call, time_major(call, name), "input_to_{}_weights", prefix)
        if mode == Linking.CROSS:
            inputs += _products(call, time_major(call, "aux_input"), "aux_input_to_{}_weights", prefix)
        layers[prefix] = _run_layer(call, inputs, prefix, backward=prefix == "bw_")
    out, *states = layers["fw_"]
    back_out, *back_states = layers["bw_"]
    return bidirectional_outputs(call, out, back_out, [*states, *back_states])
