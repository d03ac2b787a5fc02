"""What kernels of recurrent layers share: activations of cells, the order of time, merging of two directions."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from driver.backends.reference.kernel import Floats, floats, narrowed
from driver.operations.call import Call
from driver.operations.sequence import SIGMOID, TANH, cell_activation
from nnhal.types import AnyArray, FusedActivationFunc

Activation = Callable[[Floats], Floats]


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)); 0 where the exponential overflows."""
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


def activation_of(call: Call) -> Activation:
    """The function behind the argument `activation` of a cell."""
    return _ACTIVATIONS[cell_activation(call)]


def over_time(call: Call, name: str) -> Floats:
    """A sequence as [time, batches, size], whatever its layout."""
    value = floats(call, name)
    return value if call.flag("time_major") else value.swapaxes(0, 1)


def laid_out_over_time(call: Call, sequence: Floats) -> AnyArray:
    """[time, batches, size] in the layout and the type of the input."""
    ordered = sequence if call.flag("time_major") else np.ascontiguousarray(sequence.swapaxes(0, 1))
    return narrowed(call, ordered, "input")


def steps(count: int, backward: bool) -> Iterator[int]:
    """Time steps in the order of a direction."""
    return iter(range(count - 1, -1, -1) if backward else range(count))


def both_directions(call: Call, forward: Floats, backward: Floats, states: Sequence[Floats]) -> list[AnyArray]:
    """The outputs of a bidirectional layer from its sequences [time, batches, size] and its states."""
    merged = call.flag("merge_outputs")
    sequences = [np.concatenate([forward, backward], axis=2)] if merged else [forward, backward]
    outputs = [laid_out_over_time(call, sequence) for sequence in sequences]
    outputs += [narrowed(call, state, "input") for state in states]
    return outputs[: len(call.view.operation.outputs)]
