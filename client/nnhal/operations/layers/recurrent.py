"""Basic recurrent layers: RNN, SVDF, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN."""

from nnhal.operations.signature import FLOATS, signature
from nnhal.types import OperationType

_CELL = "weights:T recurrent_weights:T bias:T"

signature(
    OperationType.RNN,
    inputs=f"input:T {_CELL} hidden_state_in:T activation",
    outputs="hidden_state_out:T output:T",
    types=FLOATS,
)

signature(
    OperationType.SVDF,
    inputs="input:T weights_feature:T weights_time:T bias:T? state_in:T rank activation",
    outputs="state_out:T output:T",
    types=FLOATS,
)

signature(
    OperationType.UNIDIRECTIONAL_SEQUENCE_RNN,
    inputs=f"input:T {_CELL} hidden_state:T activation time_major",
    outputs="output:T [state_out:T]",
    types=FLOATS,
)

signature(
    OperationType.BIDIRECTIONAL_SEQUENCE_RNN,
    inputs="input:T "
    "fw_weights:T fw_recurrent_weights:T fw_bias:T fw_hidden_state:T "
    "bw_weights:T bw_recurrent_weights:T bw_bias:T bw_hidden_state:T "
    "aux_input:T? fw_aux_weights:T? bw_aux_weights:T? activation time_major:BOOL merge_outputs:BOOL",
    # The meaning of an output depends on merge_outputs: (merged) or (fw, bw), then (fw state, bw state).
    outputs="output0:T [output1:T] [output2:T] [output3:T]",
    types=FLOATS,
)
