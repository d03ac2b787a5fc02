"""Shapes of RNN, SVDF, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN."""

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.sequence import (
    Linking,
    bidirectional_shapes,
    cell_activation,
    linking_mode,
    matrix_shape,
    sequence_shape,
    step_multiply_adds,
)
from nnhal_driver.operations.shape import require_shape, shape_rule

AUX_WEIGHTS = ("fw_aux_weights", "bw_aux_weights")


def _cell(call: OperationCall, prefix: str, state: str, batches: int, size: int) -> Shape:
    """Return the shape of a cell's state, [batches, units], after checking the shapes of its weights."""
    units, _ = matrix_shape(call, f"{prefix}weights")
    require_shape(call, f"{prefix}weights", (units, size))
    require_shape(call, f"{prefix}recurrent_weights", (units, units))
    require_shape(call, f"{prefix}bias", (units,))
    require_shape(call, state, (batches, units))
    return (batches, units)


@shape_rule(OperationType.RNN, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def rnn(call: OperationCall) -> list[Shape]:
    """Return [batch_size, num_units], twice."""
    cell_activation(call)
    state = _cell(call, "", "hidden_state_in", *matrix_shape(call, "input"))
    return [state, state]


@shape_rule(OperationType.SVDF)
def svdf(call: OperationCall) -> list[Shape]:
    """Return the shape of the state, and [batch_size, num_units]."""
    call.activation()
    rank = call.integer("rank")
    batches, size = matrix_shape(call, "input")
    filters, columns = matrix_shape(call, "weights_feature")
    _, memory = matrix_shape(call, "weights_time")
    call.require(columns == size, f"weights_feature has {columns} columns; it must have {size}, as input")
    call.require(rank >= 1 and filters % rank == 0, f"rank is {rank}; it must divide the {filters} filters")
    call.require(memory >= 1, "weights_time has no columns")
    require_shape(call, "weights_time", (filters, memory))
    require_shape(call, "state_in", (batches, memory * filters))
    if call.has("bias"):
        require_shape(call, "bias", (filters // rank,))
    return [(batches, memory * filters), (batches, filters // rank)]


@shape_rule(OperationType.UNIDIRECTIONAL_SEQUENCE_RNN, empty=False)
def unidirectional_sequence_rnn(call: OperationCall) -> list[Shape]:
    """Return the shape of the input with num_units in place of its size, then the state unless it is left out."""
    cell_activation(call)
    time_major = call.integer("time_major")
    call.require(time_major in (0, 1), f"time_major is {time_major}; it must be 0 or 1")
    _, batches, size = sequence_shape(call)
    state = _cell(call, "", "hidden_state", batches, size)
    return [(*call.shape("input")[:2], state[1]), state][: len(call.view.operation.outputs)]


@shape_rule(OperationType.BIDIRECTIONAL_SEQUENCE_RNN, empty=False)
def bidirectional_sequence_rnn(call: OperationCall) -> list[Shape]:
    """Return the shape of the input with num_units in place of its size, for each direction; then the states."""
    cell_activation(call)
    mode = linking_mode(call, AUX_WEIGHTS)
    _, batches, size = sequence_shape(call)
    aux_size = 0 if mode == Linking.NONE else sequence_shape(call, "aux_input")[2]
    forward = _cell(call, "fw_", "fw_hidden_state", batches, size)
    backward = _cell(call, "bw_", "bw_hidden_state", batches, aux_size if mode == Linking.PARALLEL else size)
    if mode == Linking.CROSS:
        for name, (_, units) in zip(AUX_WEIGHTS, (forward, backward), strict=True):
            require_shape(call, name, (units, aux_size))
    return bidirectional_shapes(call, forward[1], backward[1], [forward, backward])


@multiply_adds(
    *(OperationType.RNN, OperationType.UNIDIRECTIONAL_SEQUENCE_RNN), of=("input", "weights", "recurrent_weights")
)
def rnn_multiply_adds(sequence: Shape, *weights: Shape) -> int:
    """Count each weight once for each time step and batch."""
    return step_multiply_adds(sequence, *weights)


@multiply_adds(OperationType.BIDIRECTIONAL_SEQUENCE_RNN, of=("input", "fw_weights", "fw_recurrent_weights"))
def bidirectional_rnn_multiply_adds(sequence: Shape, *weights: Shape) -> int:
    """Count both directions, which may each have an auxiliary input."""
    return 3 * step_multiply_adds(sequence, *weights)
