"""Float LSTM layers: LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM."""

from nnhal.operations.signature import FLOATS_WITH_SCALARS, signature
from nnhal.types import OperationType

_GATES = ("input", "forget", "cell", "output")


def _per_gate(pattern: str, marks: str = "????") -> str:
    """Return one argument for each gate. `marks` has "?" for a gate that may be omitted (CIFG)."""
    return " ".join(f"{pattern.format(gate)}:T{mark.strip()}" for gate, mark in zip(_GATES, marks, strict=True))


def _cell(prefix: str = "") -> str:
    """Return the weights of one cell: first those of its gates, then the projection."""
    return " ".join(
        [
            _per_gate(prefix + "input_to_{}_weights", "?   "),
            _per_gate(prefix + "recurrent_to_{}_weights", "?   "),
            f"{prefix}cell_to_input_weights:T? {prefix}cell_to_forget_weights:T? {prefix}cell_to_output_weights:T?",
            f"{prefix}input_gate_bias:T? {prefix}forget_gate_bias:T {prefix}cell_bias:T {prefix}output_gate_bias:T",
            f"{prefix}projection_weights:T? {prefix}projection_bias:T?",
        ]
    )


_STATES = "output_state_in:T cell_state_in:T"
_SCALARS = "activation cell_clip:S proj_clip:S"
_NORM = "{}_layer_norm_weights"

signature(
    OperationType.LSTM,
    inputs=f"input:T {_cell()} {_STATES} {_SCALARS} [{_per_gate(_NORM)}]",
    outputs="scratch_buffer:T output_state_out:T cell_state_out:T output:T",
    types=FLOATS_WITH_SCALARS,
)

signature(
    OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM,
    inputs=f"input:T {_cell()} {_STATES} {_SCALARS} time_major:BOOL {_per_gate(_NORM)}",
    outputs="output:T [output_state_out:T cell_state_out:T]",
    types=FLOATS_WITH_SCALARS,
)

signature(
    OperationType.BIDIRECTIONAL_SEQUENCE_LSTM,
    inputs=f"input:T {_cell('fw_')} {_cell('bw_')} "
    "fw_output_state_in:T fw_cell_state_in:T bw_output_state_in:T bw_cell_state_in:T "
    f"aux_input:T? {_per_gate('fw_aux_input_to_{}_weights')} {_per_gate('bw_aux_input_to_{}_weights')} "
    f"{_SCALARS} merge_outputs:BOOL time_major:BOOL {_per_gate('fw_' + _NORM)} {_per_gate('bw_' + _NORM)}",
    # The meaning of an output depends on merge_outputs: (merged) or (fw, bw), then h and C of fw, h and C of bw.
    outputs="output0:T [output1:T] [output2:T output3:T output4:T] [output5:T]",
    types=FLOATS_WITH_SCALARS,
)
