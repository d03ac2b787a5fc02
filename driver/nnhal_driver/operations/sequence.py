"""Shared rules of recurrent layers: sequences, optional weights, cell activations and bidirectional layers."""

from collections.abc import Sequence
from enum import Enum
from math import prod

from nnhal.types import FusedActivationFunc
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.multiply_adds import STEP

TANH = 4
SIGMOID = 6
"""Activations of cells that FusedActivationFunc lacks."""


class Linking(Enum):
    """Cells of a bidirectional layer that read `aux_input`.

    NONE: neither. CROSS: both, in addition to the input. PARALLEL: the backward cell, in place of the input.
    """

    NONE = 0
    CROSS = 1
    PARALLEL = 2


def cell_activation(call: OperationCall) -> int:
    """Return the argument `activation` of a recurrent cell: a FusedActivationFunc, TANH or SIGMOID.

    Raises:
        HalError: GENERAL_FAILURE: the value is not one of these.
    """
    value = call.integer("activation")
    known = (*FusedActivationFunc, TANH, SIGMOID)
    call.require(value in known, f"activation is {value}; it must be one of {', '.join(str(int(k)) for k in known)}")
    return value


def matrix_shape(call: OperationCall, name: str) -> tuple[int, int]:
    """Return the shape of an argument of rank 2.

    Raises:
        HalError: GENERAL_FAILURE: the rank is not 2.
    """
    shape = call.shape(name)
    call.require(len(shape) == 2, f"{name} has rank {len(shape)}; it must be 2")
    return shape[0], shape[1]


def sequence_shape(call: OperationCall, name: str = "input") -> tuple[int, int, int]:
    """Return time steps, batches and size of a sequence of either layout.

    Raises:
        HalError: GENERAL_FAILURE: the rank is not 3.
    """
    shape = call.shape(name)
    call.require(len(shape) == 3, f"{name} has rank {len(shape)}; it must be 3")
    first, second, size = shape
    return (first, second, size) if call.flag("time_major") else (second, first, size)


def all_or_none(call: OperationCall, names: Sequence[str]) -> bool:
    """Return whether optional arguments that belong together have values.

    Raises:
        HalError: GENERAL_FAILURE: only some of them have values.
    """
    missing = [name for name in names if not call.has(name)]
    present = [name for name in names if call.has(name)]
    call.require(
        not (missing and present), f"{', '.join(present)} cannot be given without {', '.join(missing)}: all or none"
    )
    return bool(present)


def linking_mode(call: OperationCall, aux_weights: Sequence[str]) -> Linking:
    """Return the linking mode, which follows from the values present among `aux_input` and `aux_weights`.

    Raises:
        HalError: GENERAL_FAILURE: no mode has these values, or `aux_input` and input differ in time steps or batches.
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


def bidirectional_shapes(call: OperationCall, forward: int, backward: int, states: Sequence[Shape]) -> list[Shape]:
    """Return the shapes of a bidirectional layer's outputs: one merged sequence or two, then the states if present.

    `forward` and `backward` are the numbers of values of a direction at each time step.

    Raises:
        HalError: GENERAL_FAILURE: the number of outputs does not match `merge_outputs`.
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


def step_multiply_adds(sequence: Shape, *weights: Shape) -> int:
    """Return the multiply-adds of a layer whose time steps use each weight once for each batch, and their overhead."""
    steps = sequence[:-1]
    return STEP * max(steps, default=1) + prod(steps) * sum(map(prod, weights))
