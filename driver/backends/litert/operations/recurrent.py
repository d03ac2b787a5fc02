"""RNN."""

from driver.backends.litert.lowering import Lowering, converter
from nnhal.types import OperationType


@converter(OperationType.RNN)
def rnn(lower: Lowering) -> None:
    """activation(input * weights + hidden state * recurrent weights + bias), as two matrix products and their sum."""
    values, weights, bias = (lower.input(name) for name in ("input", "weights", "bias"))
    fresh = lower.temporary(lower.spec("output"), lower.shape("output"))
    lower.emit("FULLY_CONNECTED", [values, weights, bias], [fresh], "FullyConnectedOptions")
    kept = lower.like(fresh)
    state, recurrent = lower.input("hidden_state_in"), lower.input("recurrent_weights")
    lower.emit("FULLY_CONNECTED", [state, recurrent, -1], [kept], "FullyConnectedOptions")
    out = lower.like(fresh)
    activation = lower.call.activation()
    lower.emit("ADD", [fresh, kept], [out], "AddOptions", fusedActivationFunction=activation)
    for name in ("output", "hidden_state_out"):
        lower.copy(out, lower.output(name))
