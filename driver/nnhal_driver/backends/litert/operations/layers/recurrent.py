"""Converters of RNN, and of the layers that run an RNN over a sequence."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter
from nnhal_driver.backends.litert.operations.sequence import CELL_ACTIVATIONS, emit_layer
from nnhal_driver.backends.litert.shape_analysis import Unsupported

_RNN_INPUTS = 12


@converter(OperationType.RNN)
def rnn(lower: Lowering) -> None:
    """Emit activation(input * weights + hidden state * recurrent weights + bias) as two products and their sum."""
    values, weights, bias = (lower.input(name) for name in ("input", "weights", "bias"))
    from_input = lower.writer.tensor(lower.spec("output"), lower.shape("output"))
    lower.emit("FULLY_CONNECTED", [values, weights, bias], [from_input], "FullyConnectedOptions")
    from_state = lower.like(from_input)
    state, recurrent = lower.input("hidden_state_in"), lower.input("recurrent_weights")
    lower.emit("FULLY_CONNECTED", [state, recurrent, -1], [from_state], "FullyConnectedOptions")
    out = lower.like(from_input)
    activation = lower.call.activation()
    lower.emit("ADD", [from_input, from_state], [out], "AddOptions", fused_activation_function=activation)
    for name in ("output", "hidden_state_out"):
        lower.copy(out, lower.output(name))


@converter(OperationType.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(lower: Lowering) -> None:
    """Emit UNIDIRECTIONAL_SEQUENCE_RNN."""
    fields = {"time_major": bool(lower.call.integer("time_major")), **_rnn_fields(lower)}
    emit_layer(lower, "UNIDIRECTIONAL_SEQUENCE_RNN", lower.argument_names[:5], "SequenceRNNOptions", fields)


@converter(OperationType.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(lower: Lowering) -> None:
    """Emit BIDIRECTIONAL_SEQUENCE_RNN."""
    time_major = lower.call.flag("time_major")
    if lower.call.has("aux_input") and not lower.call.has("fw_aux_weights") and not time_major:
        raise Unsupported("the engine ignores the auxiliary input of batch-major layers")
    fields = {
        "time_major": time_major,
        "merge_outputs": lower.call.flag("merge_outputs"),
        **_rnn_fields(lower),
    }
    inputs = lower.argument_names[:_RNN_INPUTS]
    emit_layer(lower, "BIDIRECTIONAL_SEQUENCE_RNN", inputs, "BidirectionalSequenceRNNOptions", fields)


def _rnn_fields(lower: Lowering) -> dict[str, object]:
    """Return the activation, which NONE leaves out: `fuse_activation` must not put another one into the cell."""
    activation = lower.call.integer("activation")
    if activation not in (0, *CELL_ACTIVATIONS):
        raise Unsupported(f"activation is {activation}; the engine has {(0, *CELL_ACTIVATIONS)}")
    return {"fused_activation_function": activation} if activation else {}
