"""Recurrent layers: LSTM, RNN and SVDF, and the layers that run an LSTM or an RNN over a sequence.

In TFLite their states are variable tensors. Here each execution starts with the state that a new interpreter has:
zeros. If the states are inputs of the model (`variables.expose_states`), the layer returns them as further outputs.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import ActivationFunctionType, BuiltinOperator
from nnhal.tflite_schema.enumerations import LSTMKernelType
from nnhal.types import FusedActivationFunc, Operand, OperandLifeTime, OperandType, OperationType

_TANH = 4
_ACTIVATIONS = {
    ActivationFunctionType.RELU: FusedActivationFunc.RELU,
    ActivationFunctionType.RELU_N1_TO_1: FusedActivationFunc.RELU1,
    ActivationFunctionType.RELU6: FusedActivationFunc.RELU6,
    ActivationFunctionType.TANH: _TANH,
}
"""Activations of an LSTM cell in NNAPI, which has more of them than other operations. TFLite does not compute NONE."""
_CELL = range(1, 18)
"""Inputs with the weights of an LSTM cell, in the same order in both formats."""
_NORM = range(20, 24)
"""Inputs with the layer normalization weights of an LSTM."""
_GATES = 4


@converter(BuiltinOperator.LSTM)
def lstm(call: OperatorCall) -> None:
    """Convert one step of an LSTM."""
    if call.option("kernel_type", LSTMKernelType.FULL) != LSTMKernelType.FULL:
        raise TfliteError("the basic kernel, with one matrix for all gates, has no NNAPI counterpart")
    _require_float(call, 0, *_CELL, *_NORM)
    cell = [_optional(call, position) for position in _CELL]
    states = [_state(call, 18), _state(call, 19)]
    inputs = [call.input(0), *cell, *states, *_lstm_scalars(call)]
    if len(call.operator.inputs) > _NORM.start:
        inputs += [_optional(call, position) for position in _NORM]
    batches, units = call.operand(states[1]).dimensions
    gates = _GATES if call.has_input(1) else _GATES - 1
    scratch = call.add(replace(call.output(), dimensions=(batches, units * gates)))
    call.emit(OperationType.LSTM, inputs, [scratch, *_next_states(call, states), call.write(0)])


@converter(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(call: OperatorCall) -> None:
    """Convert an LSTM over a sequence."""
    if call.option("diagonal_recurrent_tensors", False):
        raise TfliteError("diagonal recurrent weights have no NNAPI counterpart")
    _require_float(call, 0, *_CELL, *_NORM)
    cell = [_optional(call, position) for position in _CELL]
    inputs = [call.input(0), *cell, _state(call, 18), _state(call, 19), *_lstm_scalars(call)]
    inputs += [call.bool_scalar(call.option("time_major", False)), *(_optional(call, position) for position in _NORM)]
    call.emit(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs)


@converter(BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(call: OperatorCall) -> None:
    """Convert an LSTM in both directions. TFLite has no layer normalization here."""
    weights, states, auxiliary = range(1, 35), range(35, 39), range(39, 48)
    _require_float(call, 0, *weights, *auxiliary)
    inputs = [call.input(0), *(_optional(call, position) for position in weights)]
    inputs += [*(_state(call, position) for position in states), *(_optional(call, i) for i in auxiliary)]
    flags = [call.bool_scalar(call.option(name, False)) for name in ("merge_outputs", "time_major")]
    inputs += [*_lstm_scalars(call), *flags, *(_omitted(call) for _ in range(2 * _GATES))]
    call.emit(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM, inputs)


@converter(BuiltinOperator.RNN)
def rnn(call: OperatorCall) -> None:
    """Convert one step of an RNN."""
    _require_float(call, 0, 1, 2, 3)
    state = _state(call, 4)
    inputs = [*(call.input(position) for position in range(4)), state, _rnn_activation(call)]
    call.emit(OperationType.RNN, inputs, [*_next_states(call, [state]), call.write(0)])


@converter(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN)
def unidirectional_sequence_rnn(call: OperatorCall) -> None:
    """Convert an RNN over a sequence."""
    _require_float(call, 0, 1, 2, 3)
    inputs = [*(call.input(position) for position in range(4)), _state(call, 4), _rnn_activation(call)]
    call.emit(OperationType.UNIDIRECTIONAL_SEQUENCE_RNN, [*inputs, call.int32_scalar(call.option("time_major", False))])


@converter(BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN)
def bidirectional_sequence_rnn(call: OperatorCall) -> None:
    """Convert an RNN in both directions. TFLite's kernel has an error that NNAPI's definition does not have."""
    if call.has_input(9) and not call.has_input(10) and not call.option("time_major", False):
        raise TfliteError("TFLite ignores the auxiliary input of a batch-major layer, NNAPI does not")
    states = (4, 8)
    others = [position for position in range(12) if position not in states]
    _require_float(call, *others)
    inputs = [_state(call, i) if i in states else _optional(call, i) for i in range(12)]
    flags = [call.bool_scalar(call.option(name, False)) for name in ("time_major", "merge_outputs")]
    call.emit(OperationType.BIDIRECTIONAL_SEQUENCE_RNN, [*inputs, _rnn_activation(call), *flags])


@converter(BuiltinOperator.SVDF)
def svdf(call: OperatorCall) -> None:
    """Convert one step of an SVDF."""
    _require_float(call, 0, 1, 2, 3)
    state = _state(call, 4)
    inputs = [*(call.input(position) for position in range(3)), _optional(call, 3), state]
    inputs += [call.int32_scalar(call.option("rank")), call.activation()]
    call.emit(OperationType.SVDF, inputs, [*_next_states(call, [state]), call.write(0)])


def _require_float(call: OperatorCall, *positions: int) -> None:
    """Raise TfliteError if an input is not float: TFLite's quantized and mixed cells have no NNAPI counterpart."""
    for position in positions:
        if call.has_input(position) and call.description(position).type != OperandType.TENSOR_FLOAT32:
            raise TfliteError(f"{call.tensor(position)} is not float32; NNAPI's cells have no quantized weights")


def _lstm_scalars(call: OperatorCall) -> list[int]:
    """Return the operands of the activation and of both clipping thresholds."""
    like = call.output()
    clips = [call.float_scalar(call.option(name, 0.0), like) for name in ("cell_clip", "proj_clip")]
    return [_activation(call), *clips]


def _activation(call: OperatorCall) -> int:
    function = call.option("fused_activation_function", ActivationFunctionType.NONE)
    if function not in _ACTIVATIONS:
        raise TfliteError(f"activation {function} of the cell has no NNAPI counterpart")
    return call.int32_scalar(_ACTIVATIONS[function])


def _rnn_activation(call: OperatorCall) -> int:
    if call.option("fused_activation_function", ActivationFunctionType.NONE) == ActivationFunctionType.NONE:
        return call.int32_scalar(FusedActivationFunc.NONE)
    return _activation(call)


def _optional(call: OperatorCall, position: int) -> int:
    return call.input(position) if call.has_input(position) else _omitted(call)


def _omitted(call: OperatorCall) -> int:
    return call.add(Operand(OperandType.TENSOR_FLOAT32, (0,), lifetime=OperandLifeTime.NO_VALUE))


def _state(call: OperatorCall, position: int) -> int:
    """Return the operand of a state: zeros, or an input of the model."""
    tensor, state = call.tensor(position), call.description(position)
    if not tensor.is_variable and len(call.operator.outputs) > 1:
        return call.input(position)
    if not tensor.is_variable:
        raise TfliteError(f"{tensor} is a state, but not a variable")
    if state.type != OperandType.TENSOR_FLOAT32:
        raise TfliteError(f"{tensor} is a state that is not float32")
    zeros = np.broadcast_to(np.float32(0), state.dimensions)  # without memory, which may not suffice
    return call.constant(zeros, state)


def _next_states(call: OperatorCall, states: Sequence[int]) -> list[int]:
    """Return the operands of the states after an execution, which nothing reads unless they are outputs."""
    if len(call.operator.outputs) > 1:
        return [call.write(number) for number in range(1, len(call.operator.outputs))]
    return [call.add(Operand(state.type, state.dimensions)) for state in map(call.operand, states)]
