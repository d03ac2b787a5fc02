"""Shapes of LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM, and the parts of an LSTM cell."""

from dataclasses import dataclass

from nnhal.types import OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.sequence import (
    Linking,
    all_or_none,
    bidirectional_shapes,
    cell_activation,
    linking_mode,
    matrix_shape,
    sequence_shape,
    step_multiply_adds,
)
from nnhal_driver.operations.shape import require_shape, shape_rule

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
"""Symbolic shapes of the tensors of a cell. Optional tensors may be absent."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Sizes of an LSTM cell.

    Attributes:
        gates: gates of the cell. With CIFG there is no input gate: 1 - forget replaces it.
    """

    gates: tuple[str, ...]
    batches: int
    units: int
    output: int

    @property
    def states(self) -> list[Shape]:
        """Shapes of output state and cell state."""
        return [(self.batches, self.output), (self.batches, self.units)]


def cell_gates(call: OperationCall, prefix: str = "") -> tuple[str, ...]:
    """Return the gates of a cell.

    Raises:
        HalError: GENERAL_FAILURE: only some of the input gate's tensors are present.
    """
    has_input_gate = all_or_none(
        call,
        [f"{prefix}input_to_input_weights", f"{prefix}recurrent_to_input_weights", f"{prefix}{BIASES['input']}"],
    )
    return GATES if has_input_gate else GATES[1:]


def lstm_cell(call: OperationCall, prefix: str, batches: int, size: int, aux_size: int = 0) -> Cell:
    """Return the sizes of one cell, after checking its optional tensors and all shapes.

    `prefix`: "fw_" or "bw_" if there are two cells; `aux_size`: of its auxiliary input (cross linking).

    Raises:
        HalError: GENERAL_FAILURE.
    """
    units, _ = matrix_shape(call, f"{prefix}input_to_output_weights")
    _, output = matrix_shape(call, f"{prefix}recurrent_to_output_weights")
    call.require(units > 0 and output > 0, f"{prefix}recurrent_to_output_weights has no elements")
    cell = Cell(cell_gates(call, prefix), batches, units, output)
    _check_parts(call, prefix, cell)
    sizes = {"units": units, "output": output, "input": size, "aux": aux_size, "batches": batches}
    for name, axes in _SHAPES.items():
        if call.has(prefix + name):
            require_shape(call, prefix + name, tuple(sizes[axis] for axis in axes))
    return cell


def _check_parts(call: OperationCall, prefix: str, cell: Cell) -> None:
    """Check that the tensors of peepholes, layer normalization and projection are present together."""
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


def check_clips(call: OperationCall) -> None:
    """Check that clips are not negative. A clip without a value does not clip, like 0.

    Raises:
        HalError: GENERAL_FAILURE.
    """
    for name in ("cell_clip", "proj_clip"):
        clip = call.number(name) if call.has(name) else 0.0
        call.require(clip >= 0, f"{name} is {clip:g}; it must be >= 0")


@shape_rule(OperationType.LSTM)
def lstm(call: OperationCall) -> list[Shape]:
    """Return [batches, num_units * gates]; [batches, output_size]; [batches, num_units]; [batches, output_size]."""
    cell_activation(call)
    check_clips(call)
    cell = lstm_cell(call, "", *matrix_shape(call, "input"))
    output_state, cell_state = cell.states
    return [(cell.batches, cell.units * len(cell.gates)), output_state, cell_state, output_state]


@shape_rule(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM, empty=False)
def unidirectional_sequence_lstm(call: OperationCall) -> list[Shape]:
    """Return the shape of the input with output_size in place of its size, then both states unless left out."""
    cell_activation(call)
    check_clips(call)
    cell = lstm_cell(call, "", *sequence_shape(call)[1:])
    return [(*call.shape("input")[:2], cell.output), *cell.states][: len(call.view.operation.outputs)]


def lstm_linking_mode(call: OperationCall) -> Linking:
    """Return the linking mode of BIDIRECTIONAL_SEQUENCE_LSTM.

    Raises:
        HalError: GENERAL_FAILURE: no mode has the auxiliary tensors that are present.
    """
    return linking_mode(
        call,
        [f"{prefix}aux_input_to_{gate}_weights" for prefix in ("fw_", "bw_") for gate in cell_gates(call, prefix)],
    )


@shape_rule(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(call: OperationCall) -> list[Shape]:
    """Return the shape of the input with the output size in place of its size, for each direction; then the states."""
    cell_activation(call)
    check_clips(call)
    mode = lstm_linking_mode(call)
    _, batches, size = sequence_shape(call)
    aux_size = 0 if mode == Linking.NONE else sequence_shape(call, "aux_input")[2]
    forward = lstm_cell(call, "fw_", batches, size, aux_size)
    backward = lstm_cell(call, "bw_", batches, aux_size if mode == Linking.PARALLEL else size, aux_size)
    return bidirectional_shapes(call, forward.output, backward.output, [*forward.states, *backward.states])


@multiply_adds(
    *(OperationType.LSTM, OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM),
    of=("input", "input_to_output_weights", "recurrent_to_output_weights"),
)
def lstm_multiply_adds(sequence: Shape, *weights: Shape) -> int:
    """Count the weights of all gates, and as many of a projection."""
    return (len(GATES) + 1) * step_multiply_adds(sequence, *weights)


@multiply_adds(
    OperationType.BIDIRECTIONAL_SEQUENCE_LSTM,
    of=("input", "fw_input_to_output_weights", "fw_recurrent_to_output_weights"),
)
def bidirectional_lstm_multiply_adds(sequence: Shape, *weights: Shape) -> int:
    """Count both directions, which may each have an auxiliary input."""
    return 3 * lstm_multiply_adds(sequence, *weights)
