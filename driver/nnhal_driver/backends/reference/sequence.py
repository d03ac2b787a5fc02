"""Functions that kernels of recurrent layers share: cell activations, order of time, bidirectional outputs."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from nnhal.types import AnyArray, FusedActivationFunc
from nnhal_driver.backends.reference.kernel import Floats, as_float32, to_output_type
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.sequence import SIGMOID, TANH, cell_activation

Activation = Callable[[Floats], Floats]


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)). It is 0 where the exponential overflows."""
    with np.errstate(over="ignore"):
        out: Floats = np.float32(1) / (np.float32(1) + np.exp(-x))
    return out


def _clamp(low: float, high: float) -> Activation:
    return lambda x: np.clip(x, np.float32(low), np.float32(high))


_ACTIVATIONS: dict[int, Activation] = {
    FusedActivationFunc.NONE: lambda x: x,
    FusedActivationFunc.RELU: _clamp(0, np.inf),
    FusedActivationFunc.RELU1: _clamp(-1, 1),
    FusedActivationFunc.RELU6: _clamp(0, 6),
    TANH: np.tanh,
    SIGMOID: sigmoid,
}


def activation_function(call: OperationCall) -> Activation:
    """Return the function that the argument `activation` of a cell selects."""
    return _ACTIVATIONS[cell_activation(call)]


def time_major(call: OperationCall, name: str) -> Floats:
    """Return a sequence of either layout as [time, batches, size]."""
    value = as_float32(call, name)
    return value if call.flag("time_major") else value.swapaxes(0, 1)


def to_sequence_layout(call: OperationCall, sequence: Floats) -> AnyArray:
    """Convert a sequence [time, batches, size] to the layout and the type of the input."""
    ordered = sequence if call.flag("time_major") else np.ascontiguousarray(sequence.swapaxes(0, 1))
    return to_output_type(call, ordered, "input")


def time_steps(call: OperationCall, count: int, backward: bool) -> Iterator[int]:
    """Yield the indices of the time steps, in the order of a direction, and check before each."""
    for step in range(count - 1, -1, -1) if backward else range(count):
        call.check()
        yield step


def bidirectional_outputs(
    call: OperationCall, forward: Floats, backward: Floats, states: Sequence[Floats]
) -> list[AnyArray]:
    """Return the outputs of a bidirectional layer from its sequences [time, batches, size] and its states."""
    merged = call.flag("merge_outputs")
    sequences = [np.concatenate([forward, backward], axis=2)] if merged else [forward, backward]
    outputs = [to_sequence_layout(call, sequence) for sequence in sequences]
    outputs += [to_output_type(call, state, "input") for state in states]
    return outputs[: len(call.view.operation.outputs)]
