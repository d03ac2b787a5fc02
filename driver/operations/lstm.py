"""Shapes of LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM, and the parts of an LSTM cell."""

from dataclasses import dataclass

from driver.operations.call import Call, Shape
from driver.operations.sequence import (
    Linking,
    all_or_none,
    cell_activation,
    linking,
    matrix_shape,
    sequence_shape,
    two_directions,
)
from driver.operations.shape import fixed_shape, shape_rule
from nnhal.types import OperationType

GATES = ("input", "forget", "cell", "output")
BIASES = {"input": "input_gate_bias", "forget": "forget_gate_bias", "cell": "cell_bias", "output": "output_gate_bias"}

_SHAPES = {
    **{f"input_to_{gate}_weights": ("units", "input") for gate in GATES},
    **{f"recurrent_to_{gate}_weights": ("units", "output") for gate in GATES},
    **{f"aux_input_to_{gate}_weights": ("units", "aux") for gate in GATES},
    **{f"cell_to_{gate}_weights": ("units",) for gate in GATES},
    **{f"{gate}_layer_norm_weights": ("units",) for gate in GATES},
    **{bias: ("units",) for bias in BIASES.values()},
    "projection_weights": ("output", "units"),
    "projection_bias": ("output",),
    "output_state_in": ("batches", "output"),
    "cell_state_in": ("batches", "units"),
}
"""The shape of each tensor of a cell that is given."""


@dataclass(frozen=True, slots=True)
class Cell:
    """An LSTM cell. `gates`: those that it has; with CIFG there is no input gate, 1 - forget stands for it."""

    gates: tuple[str, ...]
    batches: int
    units: int
    output: int

    @property
    def states(self) -> list[Shape]:
        """Shapes of output state and cell state."""
        return [(self.batches, self.output), (self.batches, self.units)]


def gates_of(call: Call, prefix: str = "") -> tuple[str, ...]:
    """The gates that a cell has.

    Raises:
        HalError: GENERAL_FAILURE: some of the input gate's tensors are given, some are not.
    """
    own = all_or_none(
        call,
        [f"{prefix}input_to_input_weights", f"{prefix}recurrent_to_input_weights", f"{prefix}{BIASES['input']}"],
    )
    return GATES if own else GATES[1:]


def lstm_cell(call: Call, prefix: str, batches: int, size: int, aux_size: int = 0) -> Cell:
    """One cell of any LSTM; holds which of its optional tensors are given, and all their shapes.

    Args:
        call: the run.
        prefix: "fw_" or "bw_" where there are two cells.
        batches, size: dimensions of what the cell reads.
        aux_size: size of what it reads besides (cross linking).

    Raises:
        HalError: GENERAL_FAILURE.
    """
    units, _ = matrix_shape(call, f"{prefix}input_to_output_weights")
    _, output = matrix_shape(call, f"{prefix}recurrent_to_output_weights")
    call.require(units > 0 and output > 0, f"{prefix}recurrent_to_output_weights has no elements")
    cell = Cell(gates_of(call, prefix), batches, units, output)
    _check_parts(call, prefix, cell)
    sizes = {"units": units, "output": output, "input": size, "aux": aux_size, "batches": batches}
    for name, axes in _SHAPES.items():
        if call.has(prefix + name):
            fixed_shape(call, prefix + name, tuple(sizes[axis] for axis in axes))
    return cell


def _check_parts(call: Call, prefix: str, cell: Cell) -> None:
    """Holds which tensors of peepholes, layer normalisation and projection are given together."""
    peephole = all_or_none(call, [f"{prefix}cell_to_{gate}_weights" for gate in cell.gates if gate != "cell"])
    all_or_none(call, [f"{prefix}{gate}_layer_norm_weights" for gate in cell.gates])
    if "input" not in cell.gates:
        call.require(
            peephole or not call.has(f"{prefix}cell_to_input_weights"),
            f"{prefix}cell_to_input_weights cannot be given without {prefix}cell_to_forget_weights",
        )
        for name in ("input_layer_norm_weights", "aux_input_to_input_weights"):
            call.require(not call.has(prefix + name), f"{prefix}{name} cannot be given without an input gate (CIFG)")
    if not call.has(f"{prefix}projection_weights"):
        call.require(
            not call.has(f"{prefix}projection_bias"),
            f"{prefix}projection_bias cannot be given without {prefix}projection_weights",
        )
        call.require(
            cell.output == cell.units,
            f"{prefix}recurrent_to_output_weights has {cell.output} columns; "
            f"without projection it must have one for each of the {cell.units} units",
        )


def _check_scalars(call: Call) -> None:
    cell_activation(call)
    for name in ("cell_clip", "proj_clip"):
        call.require(call.number(name) >= 0, f"{name} is {call.number(name):g}; it must be >= 0")


@shape_rule(OperationType.LSTM)
def lstm(call: Call) -> list[Shape]:
    """[batches, num_units * gates]; [batches, output_size]; [batches, num_units]; [batches, output_size]."""
    _check_scalars(call)
    cell = lstm_cell(call, "", *matrix_shape(call, "input"))
    output_state, cell_state = cell.states
    return [(cell.batches, cell.units * len(cell.gates)), output_state, cell_state, output_state]


@shape_rule(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM, empty=False)
def unidirectional_sequence_lstm(call: Call) -> list[Shape]:
    """As the input, with output_size in place of its size; then both states unless they are left out."""
    _check_scalars(call)
    cell = lstm_cell(call, "", *sequence_shape(call)[1:])
    return [(*call.shape("input")[:2], cell.output), *cell.states][: len(call.view.operation.outputs)]


def lstm_linking(call: Call) -> Linking:
    """The linking mode of BIDIRECTIONAL_SEQUENCE_LSTM.

    Raises:
        HalError: GENERAL_FAILURE: the tensors that are given form no mode.
    """
    return linking(
        call,
        [f"{prefix}aux_input_to_{gate}_weights" for prefix in ("fw_", "bw_") for gate in gates_of(call, prefix)],
    )


@shape_rule(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(call: Call) -> list[Shape]:
    """As the input, with the output sizes in place of its size, merged or one for each direction; then the states."""
    _check_scalars(call)
    mode = lstm_linking(call)
    _, batches, size = sequence_shape(call)
    aux_size = 0 if mode == Linking.NONE else sequence_shape(call, "aux_input")[2]
    forward = lstm_cell(call, "fw_", batches, size, aux_size)
    backward = lstm_cell(call, "bw_", batches, aux_size if mode == Linking.PARALLEL else size, aux_size)
    return two_directions(call, forward.output, backward.output, [*forward.states, *backward.states])
