"""Converters of layers that run an LSTM over a sequence."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter
from nnhal_driver.backends.litert.operations.sequence import CELL_ACTIVATIONS, emit_layer
from nnhal_driver.backends.litert.shape_analysis import Unsupported

_LSTM_INPUTS = 20
_BIDIRECTIONAL_INPUTS = 48


@converter(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(lower: Lowering) -> None:
    """Emit UNIDIRECTIONAL_SEQUENCE_LSTM, with layer normalization if it has weights."""
    names = lower.argument_names
    norms = [name for name in names if name.endswith("_layer_norm_weights")]
    inputs = names[:_LSTM_INPUTS] + (norms if any(map(lower.call.has, norms)) else [])
    fields = {**_lstm_fields(lower), "time_major": lower.call.flag("time_major")}
    emit_layer(lower, "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, "UnidirectionalSequenceLSTMOptions", fields)


@converter(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(lower: Lowering) -> None:
    """Emit BIDIRECTIONAL_SEQUENCE_LSTM."""
    names = lower.argument_names
    if any(lower.call.has(name) for name in names if name.endswith("_layer_norm_weights")):
        raise Unsupported("the engine has no layer normalization here")
    merge, time_major = lower.call.flag("merge_outputs"), lower.call.flag("time_major")
    if merge and not time_major:
        raise Unsupported("the engine does not initialize merged outputs of batch-major layers")
    fields = {**_lstm_fields(lower), "merge_outputs": merge, "time_major": time_major}
    emit_layer(
        lower, "BIDIRECTIONAL_SEQUENCE_LSTM", names[:_BIDIRECTIONAL_INPUTS], "BidirectionalSequenceLSTMOptions", fields
    )


def _lstm_fields(lower: Lowering) -> dict[str, object]:
    activation = lower.call.integer("activation")
    if activation not in CELL_ACTIVATIONS:
        raise Unsupported(f"activation is {activation}; the engine has {CELL_ACTIVATIONS} for cells")
    return {
        "fused_activation_function": activation,
        "cell_clip": lower.call.number("cell_clip"),
        "proj_clip": lower.call.number("proj_clip"),
    }
