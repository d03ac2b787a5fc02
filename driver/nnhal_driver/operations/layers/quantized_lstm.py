"""Shapes of QUANTIZED_LSTM and QUANTIZED_16BIT_LSTM."""

from math import isfinite, log2

from nnhal.types import ErrorStatus, OperationType
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.layers.lstm import BIASES, GATES, check_clips, lstm_cell, lstm_multiply_adds
from nnhal_driver.operations.multiply_adds import multiply_adds
from nnhal_driver.operations.sequence import matrix_shape
from nnhal_driver.operations.shape import require_input_quantization, require_shape, shape_rule

_STATE_EXPONENTS = range(-15, -8)
"""Binary exponents of the cell state's scale in QUANTIZED_LSTM. tanh supports 15 + exponent integer bits."""
_STATE_EXPONENT_16BIT = -11
_IO_QUANTIZATION = (1 / 128, 128)
"""Scale and zero point of input and output of QUANTIZED_16BIT_LSTM."""


def state_exponent(call: OperationCall, name: str) -> int:
    """Return the binary logarithm of a cell state's scale.

    Raises:
        HalError: GENERAL_FAILURE: the logarithm is not an integer, to within 0.001.
    """
    scale = call.operand(name).scale
    call.require(isfinite(scale), f"{name} has scale {scale:g}; it must be finite")
    exponent = round(log2(scale))
    call.require(abs(log2(scale) - exponent) <= 1e-3, f"{name} has scale {scale:g}; it must be a power of two")
    return exponent


@shape_rule(OperationType.QUANTIZED_LSTM, empty=False)
def quantized_lstm(call: OperationCall) -> list[Shape]:
    """Return [batches, output_size]; [batches, num_units]; [batches, output_size]."""
    cell = lstm_cell(call, "", *matrix_shape(call, "input"))
    exponent = state_exponent(call, "cell_state_in")
    call.require(exponent in _STATE_EXPONENTS, f"cell_state_in has scale 2^{exponent}; it must be in 2^-15..2^-9")
    check_clips(call)
    for name in (*(f"{gate}_intermediate_scale" for gate in cell.gates), "hidden_state_scale"):
        call.require(call.number(name) > 0, f"{name} is {call.number(name):g}; it must be > 0")
    output_state, cell_state = cell.states
    return [output_state, cell_state, output_state]


@shape_rule(OperationType.QUANTIZED_16BIT_LSTM, empty=False, failure=ErrorStatus.INVALID_ARGUMENT)
def quantized_16bit_lstm(call: OperationCall) -> list[Shape]:
    """Return [batches, output_size], twice."""
    batches, size = matrix_shape(call, "input")
    _, output = matrix_shape(call, "prev_output")
    state = (batches, output)
    require_shape(call, "prev_output", state)
    require_shape(call, "prev_cell_state", state)
    for gate in GATES:
        require_shape(call, f"input_to_{gate}_weights", (output, size))
        require_shape(call, f"recurrent_to_{gate}_weights", (output, output))
        require_shape(call, BIASES[gate], (output,))
    _check_quantization(call)
    return [state, state]


def _check_quantization(call: OperationCall) -> None:
    """Check scales and zero points of QUANTIZED_16BIT_LSTM."""
    first = call.operand("input_to_input_weights")
    weights = (first.scale, first.zero_point)
    expected = {
        "input": _IO_QUANTIZATION,
        "prev_output": _IO_QUANTIZATION,
        **{f"{source}_to_{gate}_weights": weights for source in ("input", "recurrent") for gate in GATES},
        **{bias: (first.scale / 128, 0) for bias in BIASES.values()},
    }
    for name, (scale, zero_point) in expected.items():
        require_input_quantization(call, name, scale, zero_point)
    exponent = state_exponent(call, "prev_cell_state")
    call.require(
        exponent == _STATE_EXPONENT_16BIT,
        f"prev_cell_state has scale 2^{exponent}; it must be 2^{_STATE_EXPONENT_16BIT}",
    )


multiply_adds(
    *(OperationType.QUANTIZED_LSTM, OperationType.QUANTIZED_16BIT_LSTM),
    of=("input", "input_to_output_weights", "recurrent_to_output_weights"),
)(lstm_multiply_adds)
