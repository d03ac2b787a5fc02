"""Kernels of RNN, SVDF, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN."""

import numpy as np

from driver.backends.reference.kernel import Floats, activated, floats, kernel, narrowed
from driver.backends.reference.sequence import (
    activation_of,
    both_directions,
    laid_out_over_time,
    over_time,
    steps,
)
from driver.operations.call import Call
from driver.operations.recurrent import AUX_WEIGHTS
from driver.operations.sequence import Linking, linking
from nnhal.types import AnyArray, OperationType


def _layer(call: Call, inputs: Floats, prefix: str, state: str, *, backward: bool = False) -> tuple[Floats, Floats]:
    """Runs a cell over a sequence.

    Args:
        call: the run.
        inputs: what the cell reads besides its state, times its weights: [time, batches, units].
        prefix, state: names of its weights begin with `prefix`; its first state is the argument `state`.
        backward: whether time runs backwards.

    Returns:
        Its output at each time step, [time, batches, units], and its last state, [batches, units].
    """
    act = activation_of(call)
    recurrent = floats(call, f"{prefix}recurrent_weights").T
    sums = inputs + floats(call, f"{prefix}bias")
    hidden = floats(call, state)
    out = np.empty_like(sums)
    for step in steps(len(sums), backward):
        # half floats keep their state between steps as half floats
        hidden = narrowed(call, act(sums[step] + hidden @ recurrent), "input").astype(np.float32, copy=False)
        out[step] = hidden
    return out, hidden


@kernel(OperationType.RNN)
def rnn(call: Call) -> list[AnyArray]:
    """One step: activation(W x + R h + b), as state and as output."""
    _, hidden = _layer(call, floats(call, "input")[np.newaxis] @ floats(call, "weights").T, "", "hidden_state_in")
    state = narrowed(call, hidden)
    return [state, state]


@kernel(OperationType.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(call: Call) -> list[AnyArray]:
    """The same cell at each time step."""
    out, hidden = _layer(call, over_time(call, "input") @ floats(call, "weights").T, "", "hidden_state")
    return [laid_out_over_time(call, out), narrowed(call, hidden)][: len(call.view.operation.outputs)]


@kernel(OperationType.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(call: Call) -> list[AnyArray]:
    """One cell forwards and one backwards in time."""
    mode = linking(call, AUX_WEIGHTS)
    forward = over_time(call, "input") @ floats(call, "fw_weights").T
    backward = over_time(call, "aux_input" if mode == Linking.PARALLEL else "input") @ floats(call, "bw_weights").T
    if mode == Linking.CROSS:
        aux = over_time(call, "aux_input")
        forward = forward + aux @ floats(call, "fw_aux_weights").T
        backward = backward + aux @ floats(call, "bw_aux_weights").T
    out, state = _layer(call, forward, "fw_", "fw_hidden_state")
    back_out, back_state = _layer(call, backward, "bw_", "bw_hidden_state", backward=True)
    return both_directions(call, out, back_out, [state, back_state])


@kernel(OperationType.SVDF)
def svdf(call: Call) -> list[AnyArray]:
    """A memory of filtered features, filtered in time; the memory then moves on by one step."""
    filters, memory = call.shape("weights_time")
    state = floats(call, "state_in").reshape(-1, filters, memory).copy()
    state[:, :, -1] = floats(call, "input") @ floats(call, "weights_feature").T
    filtered = np.einsum("bfm,fm->bf", state, floats(call, "weights_time"))
    rank = call.integer("rank")
    out = filtered.reshape(len(state), filters // rank, rank).sum(axis=2)
    if call.has("bias"):
        out += floats(call, "bias")
    moved = np.zeros_like(state)
    moved[:, :, :-1] = state[:, :, 1:]
    return [narrowed(call, moved.reshape(call.shape("state_in"))), activated(call, out)]
