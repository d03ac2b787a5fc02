"""What recurrent layers share: sequences, optional weights, activations of cells, two directions and their linking."""

from collections.abc import Sequence
from enum import Enum

from driver.operations.call import Call, Shape
from nnhal.types import FusedActivationFunc

TANH = 4
SIGMOID = 6
"""Activations that cells have besides the fused ones."""


class Linking(Enum):
    """Who reads `aux_input`: nobody; both cells, besides the input; the backward cell, in place of the input."""

    NONE = 0
    CROSS = 1
    PARALLEL = 2


def cell_activation(call: Call) -> int:
    """The argument `activation` of a recurrent cell: one of FusedActivationFunc, TANH or SIGMOID.

    Raises:
        HalError: GENERAL_FAILURE: it is none of them.
    """
    value = call.integer("activation")
    known = (*FusedActivationFunc, TANH, SIGMOID)
    call.require(value in known, f"activation is {value}; it must be one of {', '.join(str(int(k)) for k in known)}")
    return value


def matrix_shape(call: Call, name: str) -> tuple[int, int]:
    """The shape of an argument of rank 2.

    Raises:
        HalError: GENERAL_FAILURE: it has another rank.
    """
    shape = call.shape(name)
    call.require(len(shape) == 2, f"{name} has rank {len(shape)}; it must be 2")
    return shape[0], shape[1]


def sequence_shape(call: Call, name: str = "input") -> tuple[int, int, int]:
    """Time steps, batches and size of a sequence, whatever its layout.

    Raises:
        HalError: GENERAL_FAILURE: it does not have rank 3.
    """
    shape = call.shape(name)
    call.require(len(shape) == 3, f"{name} has rank {len(shape)}; it must be 3")
    first, second, size = shape
    return (first, second, size) if call.flag("time_major") else (second, first, size)


def all_or_none(call: Call, names: Sequence[str]) -> bool:
    """Whether optional arguments that go together have values.

    Raises:
        HalError: GENERAL_FAILURE: some have, some have not.
    """
    missing = [name for name in names if not call.has(name)]
    given = [name for name in names if call.has(name)]
    call.require(
        not (missing and given), f"{', '.join(given)} cannot be given without {', '.join(missing)}: all or none"
    )
    return bool(given)


def linking(call: Call, aux_weights: Sequence[str]) -> Linking:
    """The linking mode, from which of `aux_input` and `aux_weights` have values.

    Raises:
        HalError: GENERAL_FAILURE: they form no mode, or `aux_input` is not as long as the input.
    """
    cross = all_or_none(call, aux_weights)
    if not call.has("aux_input"):
        call.require(not cross, f"{', '.join(aux_weights)} cannot be given without aux_input")
        return Linking.NONE
    steps, batches, _ = sequence_shape(call)
    aux_steps, aux_batches, _ = sequence_shape(call, "aux_input")
    call.require(
        (steps, batches) == (aux_steps, aux_batches),
        f"aux_input has {aux_steps} time steps and {aux_batches} batches, input {steps} and {batches}",
    )
    return Linking.CROSS if cross else Linking.PARALLEL


def two_directions(call: Call, forward: int, backward: int, states: Sequence[Shape]) -> list[Shape]:
    """Shapes of the outputs of a bidirectional layer: sequences, merged or not, then states unless they are left out.

    Args:
        call: the run.
        forward, backward: values at each time step.
        states: shapes of all state outputs.

    Raises:
        HalError: GENERAL_FAILURE: the number of outputs does not suit `merge_outputs`.
    """
    merged = call.flag("merge_outputs")
    time_and_batch = call.shape("input")[:2]
    sizes = [forward + backward] if merged else [forward, backward]
    shapes: list[Shape] = [(*time_and_batch, size) for size in sizes]
    count = len(call.view.operation.outputs)
    call.require(
        count in (len(shapes), len(shapes) + len(states)),
        f"has {count} outputs; with merge_outputs {str(merged).lower()} "
        f"it has {len(shapes)} or {len(shapes) + len(states)}",
    )
    return [*shapes, *states][:count]
