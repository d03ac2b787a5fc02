"""Kernels of RNN, SVDF, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN."""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import (
    Floats,
    apply_activation,
    as_float32,
    kernel,
    matrix_product,
    to_output_type,
)
from nnhal_driver.backends.reference.sequence import (
    activation_function,
    bidirectional_outputs,
    time_major,
    time_steps,
    to_sequence_layout,
)
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.layers.recurrent import AUX_WEIGHTS
from nnhal_driver.operations.sequence import Linking, linking_mode


def _run_layer(
    call: OperationCall, inputs: Floats, prefix: str, state: str, *, backward: bool = False
) -> tuple[Floats, Floats]:
    """Run a cell over its products with a sequence, [time, batches, units], from the argument `state` on.

    Return its output at each time step, [time, batches, units], and its last state, [batches, units].
    """
    act = activation_function(call)
    recurrent = as_float32(call, f"{prefix}recurrent_weights").T
    sums = inputs + as_float32(call, f"{prefix}bias")
    hidden = as_float32(call, state)
    out = np.empty_like(sums)
    for step in time_steps(call, len(sums), backward):
        # float16 layers round their state to float16 between steps
        hidden = act(sums[step] + matrix_product(call, hidden, recurrent))
        hidden = to_output_type(call, hidden, "input").astype(np.float32, copy=False)
        out[step] = hidden
    return out, hidden


def _product(call: OperationCall, rows: Floats, weights: str) -> Floats:
    """Multiply rows by transposed weights."""
    return matrix_product(call, rows, as_float32(call, weights).T)


@kernel(OperationType.RNN)
def rnn(call: OperationCall) -> list[AnyArray]:
    """Compute one step, activation(W x + R h + b), as state and as output."""
    _, hidden = _run_layer(
        call, _product(call, as_float32(call, "input")[np.newaxis], "weights"), "", "hidden_state_in"
    )
    state = to_output_type(call, hidden)
    return [state, state]


@kernel(OperationType.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(call: OperationCall) -> list[AnyArray]:
    """Run one cell over all time steps."""
    out, hidden = _run_layer(call, _product(call, time_major(call, "input"), "weights"), "", "hidden_state")
    return [to_sequence_layout(call, out), to_output_type(call, hidden)][: len(call.view.operation.outputs)]


@kernel(OperationType.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(call: OperationCall) -> list[AnyArray]:
    """Run one cell forwards and one backwards in time."""
    mode = linking_mode(call, AUX_WEIGHTS)
    forward = _product(call, time_major(call, "input"), "fw_weights")
    backward = _product(call, time_major(call, "aux_input" if mode == Linking.PARALLEL else "input"), "bw_weights")
    if mode == Linking.CROSS:
        aux = time_major(call, "aux_input")
        forward = forward + _product(call, aux, "fw_aux_weights")
        backward = backward + _product(call, aux, "bw_aux_weights")
    out, state = _run_layer(call, forward, "fw_", "fw_hidden_state")
    back_out, back_state = _run_layer(call, backward, "bw_", "bw_hidden_state", backward=True)
    return bidirectional_outputs(call, out, back_out, [state, back_state])


@kernel(OperationType.SVDF)
def svdf(call: OperationCall) -> list[AnyArray]:
    """Filter a memory of filtered features in time, then shift the memory by one step."""
    filters, memory = call.shape("weights_time")
    state = as_float32(call, "state_in").reshape(-1, filters, memory).copy()
    state[:, :, -1] = _product(call, as_float32(call, "input"), "weights_feature")
    filtered = np.einsum("bfm,fm->bf", state, as_float32(call, "weights_time"))
    rank = call.integer("rank")
    out = filtered.reshape(len(state), filters // rank, rank).sum(axis=2)
    if call.has("bias"):
        out += as_float32(call, "bias")
    shifted = np.zeros_like(state)
    shifted[:, :, :-1] = state[:, :, 1:]
    return [to_output_type(call, shifted.reshape(call.shape("state_in"))), apply_activation(call, out)]
