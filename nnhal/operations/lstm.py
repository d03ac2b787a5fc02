"""LSTM layers of floats: LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

_TYPES = """
    T               S
    TENSOR_FLOAT32  FLOAT32
    TENSOR_FLOAT16  FLOAT16
"""
_GATES = ("input", "forget", "cell", "output")


def _gated(pattern: str, marks: str = "????") -> str:
    """One argument for each gate. `marks`: "?" where it may be omitted, as the input gate's with CIFG."""
    return " ".join(f"{pattern.format(gate)}:T{mark.strip()}" for gate, mark in zip(_GATES, marks, strict=True))


def _cell(prefix: str = "") -> str:
    """The weights of one cell: for its gates, then the projection."""
    return " ".join(
        [
            _gated(prefix + "input_to_{}_weights", "?   "),
            _gated(prefix + "recurrent_to_{}_weights", "?   "),
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
    inputs=f"input:T {_cell()} {_STATES} {_SCALARS} [{_gated(_NORM)}]",
    outputs="scratch_buffer:T output_state_out:T cell_state_out:T output:T",
    types=_TYPES,
)

signature(
    OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM,
    inputs=f"input:T {_cell()} {_STATES} {_SCALARS} time_major:BOOL {_gated(_NORM)}",
    outputs="output:T [output_state_out:T cell_state_out:T]",
    types=_TYPES,
)

signature(
    OperationType.BIDIRECTIONAL_SEQUENCE_LSTM,
    inputs=f"input:T {_cell('fw_')} {_cell('bw_')} "
    "fw_output_state_in:T fw_cell_state_in:T bw_output_state_in:T bw_cell_state_in:T "
    f"aux_input:T? {_gated('fw_aux_input_to_{}_weights')} {_gated('bw_aux_input_to_{}_weights')} "
    f"{_SCALARS} merge_outputs:BOOL time_major:BOOL {_gated('fw_' + _NORM)} {_gated('bw_' + _NORM)}",
    # What an output is depends on merge_outputs: (merged) or (fw, bw), then h and C of fw, h and C of bw.
    outputs="output0:T [output1:T] [output2:T output3:T output4:T] [output5:T]",
    types=_TYPES,
)
