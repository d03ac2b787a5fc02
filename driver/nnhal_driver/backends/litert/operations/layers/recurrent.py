"""Converters of RNN, and of the layers that run an RNN or an LSTM over a sequence.

The engine keeps states in variables, which are zeros before each execution. So a sequence must start from zeros, and
nothing may read its last state.
"""

from collections.abc import Sequence

from nnhal.types import OperandLifeTime, OperandType, OperationType
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering, converter
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.operations.sequence import TANH

_CELL_ACTIVATIONS = (1, 2, 3, TANH)
"""Activations that the engine computes for LSTM cells; they have the same numbers there."""
_LSTM_INPUTS = 20
_BIDIRECTIONAL_INPUTS = 48
_RNN_INPUTS = 12


@converter(OperationType.RNN)
def rnn(lower: Lowering) -> None:
    """Emit activation(input * weights + hidden state * recurrent weights + bias) as two products and their sum."""
    values, weights, bias = (lower.input(name) for name in ("input", "weights", "bias"))
    from_input = lower.temporary(lower.spec("output"), lower.shape("output"))
    lower.emit("FULLY_CONNECTED", [values, weights, bias], [from_input], "FullyConnectedOptions")
    from_state = lower.like(from_input)
    state, recurrent = lower.input("hidden_state_in"), lower.input("recurrent_weights")
    lower.emit("FULLY_CONNECTED", [state, recurrent, -1], [from_state], "FullyConnectedOptions")
    out = lower.like(from_input)
    activation = lower.call.activation()
    lower.emit("ADD", [from_input, from_state], [out], "AddOptions", fusedActivationFunction=activation)
    for name in ("output", "hidden_state_out"):
        lower.copy(out, lower.output(name))


@converter(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(lower: Lowering) -> None:
    """Emit UNIDIRECTIONAL_SEQUENCE_LSTM, with layer normalization if it has weights."""
    names = _argument_names(lower)
    norms = [name for name in names if name.endswith("_layer_norm_weights")]
    inputs = names[:_LSTM_INPUTS] + (norms if any(map(lower.call.has, norms)) else [])
    fields = {**_lstm_fields(lower), "timeMajor": lower.call.flag("time_major")}
    _emit(lower, "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, "UnidirectionalSequenceLSTMOptions", fields)


@converter(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(lower: Lowering) -> None:
    """Emit BIDIRECTIONAL_SEQUENCE_LSTM."""
    names = _argument_names(lower)
    if any(lower.call.has(name) for name in names if name.endswith("_layer_norm_weights")):
        raise Unsupported("the engine has no layer normalization here")
    merge, time_major = lower.call.flag("merge_outputs"), lower.call.flag("time_major")
    if merge and not time_major:
        raise Unsupported("the engine does not initialize merged outputs of batch-major layers")
    fields = {**_lstm_fields(lower), "mergeOutputs": merge, "timeMajor": time_major}
    _emit(
        lower, "BIDIRECTIONAL_SEQUENCE_LSTM", names[:_BIDIRECTIONAL_INPUTS], "BidirectionalSequenceLSTMOptions", fields
    )


@converter(OperationType.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(lower: Lowering) -> None:
    """Emit UNIDIRECTIONAL_SEQUENCE_RNN."""
    fields = {"timeMajor": bool(lower.call.integer("time_major")), **_rnn_fields(lower)}
    _emit(lower, "UNIDIRECTIONAL_SEQUENCE_RNN", _argument_names(lower)[:5], "SequenceRNNOptions", fields)


@converter(OperationType.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(lower: Lowering) -> None:
    """Emit BIDIRECTIONAL_SEQUENCE_RNN."""
    time_major = lower.call.flag("time_major")
    if lower.call.has("aux_input") and not lower.call.has("fw_aux_weights") and not time_major:
        raise Unsupported("the engine ignores the auxiliary input of batch-major layers")
    fields = {
        "timeMajor": time_major,
        "mergeOutputs": lower.call.flag("merge_outputs"),
        **_rnn_fields(lower),
    }
    inputs = _argument_names(lower)[:_RNN_INPUTS]
    _emit(lower, "BIDIRECTIONAL_SEQUENCE_RNN", inputs, "BidirectionalSequenceRNNOptions", fields)


def _argument_names(lower: Lowering) -> list[str]:
    """Return the names of the inputs. Tensors come first, in the same order as in the engine."""
    arguments = lower.call.view.arguments
    assert arguments is not None
    return list(arguments.inputs)


def _lstm_fields(lower: Lowering) -> dict[str, object]:
    activation = lower.call.integer("activation")
    if activation not in _CELL_ACTIVATIONS:
        raise Unsupported(f"activation is {activation}; the engine has {_CELL_ACTIVATIONS} for cells")
    return {
        "fusedActivationFunction": activation,
        "cellClip": lower.call.number("cell_clip"),
        "projClip": lower.call.number("proj_clip"),
    }


def _rnn_fields(lower: Lowering) -> dict[str, object]:
    """Return the activation, which NONE leaves out: `fuse_activation` must not put another one into the cell."""
    activation = lower.call.integer("activation")
    if activation not in (0, *_CELL_ACTIVATIONS):
        raise Unsupported(f"activation is {activation}; the engine has {(0, *_CELL_ACTIVATIONS)}")
    return {"fusedActivationFunction": activation} if activation else {}


def _emit(lower: Lowering, operator: str, names: Sequence[str], options: str, fields: dict[str, object]) -> None:
    """Emit a layer whose states start from zeros.

    Args:
        lower: the operation.
        operator: the operator of the engine.
        names: its inputs.
        options: the type of its options.
        fields: the options.
    """
    if lower.type("input") != OperandType.TENSOR_FLOAT32:
        raise Unsupported("the engine computes these layers in float32")
    inputs = [_state(lower, name) if "_state" in name else _optional(lower, name) for name in names]
    arguments = lower.call.view.arguments
    assert arguments is not None
    count = 1 if fields.get("mergeOutputs", operator.startswith("UNI")) else 2
    for name in arguments.outputs[count:]:
        if not _is_unread(lower, name):
            raise Unsupported(f"the engine does not return {name}")
    outputs = [lower.output(name) for name in arguments.outputs[:count]]
    lower.emit(operator, inputs, outputs, options, **fields)


def _optional(lower: Lowering, name: str) -> int:
    return lower.input(name) if lower.call.has(name) else -1


def _state(lower: Lowering, name: str) -> int:
    """Return a variable for a state. The variable is zeros before each execution."""
    if not lower.is_constant(name) or lower.call.array(name).any():
        raise Unsupported(f"{name} is not a constant of zeros", f"{name} of constant zeros")
    return lower.writer.tensor(FLOAT, lower.shape(name), is_variable=True)


def _is_unread(lower: Lowering, name: str) -> bool:
    graph, position = lower.call.view.graph, lower.positions[name]
    lifetime = graph.operands[position].lifetime
    return lifetime == OperandLifeTime.TEMPORARY_VARIABLE and not graph.use_counts[position]
