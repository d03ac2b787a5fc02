"""Converter of RNN."""

from nnhal.types import OperationType
from nnhal_driver.backends.litert.lowering import Lowering, converter


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
