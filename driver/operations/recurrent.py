"""Shapes of RNN, SVDF, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN."""

from driver.operations.call import Call, Shape
from driver.operations.sequence import Linking, cell_activation, linking, matrix_shape, sequence_shape, two_directions
from driver.operations.shape import fixed_shape, shape_rule
from nnhal.types import ErrorStatus, OperationType

AUX_WEIGHTS = ("fw_aux_weights", "bw_aux_weights")


def _cell(call: Call, prefix: str, state: str, batches: int, size: int) -> Shape:
    """The shape of a cell's state, [batches, units]; holds the shapes of its weights.

    Raises:
        HalError: GENERAL_FAILURE.
    """
    units, _ = matrix_shape(call, f"{prefix}weights")
    fixed_shape(call, f"{prefix}weights", (units, size))
    fixed_shape(call, f"{prefix}recurrent_weights", (units, units))
    fixed_shape(call, f"{prefix}bias", (units,))
    fixed_shape(call, state, (batches, units))
    return (batches, units)


@shape_rule(OperationType.RNN, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def rnn(call: Call) -> list[Shape]:
    """[batch_size, num_units], twice."""
    cell_activation(call)
    state = _cell(call, "", "hidden_state_in", *matrix_shape(call, "input"))
    return [state, state]


@shape_rule(OperationType.SVDF)
def svdf(call: Call) -> list[Shape]:
    """As the state; [batch_size, num_units]."""
    call.activation()
    rank = call.integer("rank")
    batches, size = matrix_shape(call, "input")
    filters, columns = matrix_shape(call, "weights_feature")
    _, memory = matrix_shape(call, "weights_time")
    call.require(columns == size, f"weights_feature has {columns} columns; it must have {size}, as input")
    call.require(rank >= 1 and filters % rank == 0, f"rank is {rank}; it must divide the {filters} filters")
    call.require(memory >= 1, "weights_time has no columns")
    fixed_shape(call, "weights_time", (filters, memory))
    fixed_shape(call, "state_in", (batches, memory * filters))
    if call.has("bias"):
        fixed_shape(call, "bias", (filters // rank,))
    return [(batches, memory * filters), (batches, filters // rank)]


@shape_rule(OperationType.UNIDIRECTIONAL_SEQUENCE_RNN, empty=False)
def unidirectional_sequence_rnn(call: Call) -> list[Shape]:
    """As the input, with num_units in place of its size; then [batches, num_units] unless it is left out."""
    cell_activation(call)
    time_major = call.integer("time_major")
    call.require(time_major in (0, 1), f"time_major is {time_major}; it must be 0 or 1")
    _, batches, size = sequence_shape(call)
    state = _cell(call, "", "hidden_state", batches, size)
    return [(*call.shape("input")[:2], state[1]), state][: len(call.view.operation.outputs)]


@shape_rule(OperationType.BIDIRECTIONAL_SEQUENCE_RNN, empty=False)
def bidirectional_sequence_rnn(call: Call) -> list[Shape]:
    """As the input, with the units in place of its size, merged or one for each direction; then the states."""
    cell_activation(call)
    mode = linking(call, AUX_WEIGHTS)
    _, batches, size = sequence_shape(call)
    aux_size = 0 if mode == Linking.NONE else sequence_shape(call, "aux_input")[2]
    forward = _cell(call, "fw_", "fw_hidden_state", batches, size)
    backward = _cell(call, "bw_", "bw_hidden_state", batches, aux_size if mode == Linking.PARALLEL else size)
    if mode == Linking.CROSS:
        for name, (_, units) in zip(AUX_WEIGHTS, (forward, backward), strict=True):
            fixed_shape(call, name, (units, aux_size))
    return two_directions(call, forward[1], backward[1], [forward, backward])
