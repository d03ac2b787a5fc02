"""Kernels of QUANTIZED_LSTM and QUANTIZED_16BIT_LSTM: cells in 16-bit fixed point.

Arrays are int64 and hold int16 values. Fk is an int16 with k integer bits (see `gemmlowp`).
"""

import numpy as np

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import kernel, matrix_product
from nnhal_driver.backends.reference.numerics.fixed_point import Integers, encode, rdiv, rescale
from nnhal_driver.backends.reference.numerics.gemmlowp import (
    convert_bits,
    inverse_root,
    logistic,
    product,
    saturate,
    tanh,
)
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.layers.lstm import BIASES, GATES, cell_gates
from nnhal_driver.operations.layers.quantized_lstm import state_exponent

_WORD = 16
_GATE_BITS = 3
"""Integer bits of a gate before its activation."""
_NORM_BITS = 10
"""Fraction bits of the mean and of normalized values."""

# ---- QUANTIZED_LSTM -------------------------------------------------------------------------------------


@kernel(OperationType.QUANTIZED_LSTM)
def quantized_lstm(call: OperationCall) -> list[AnyArray]:
    """Compute one step. Without layer normalization the biases are added to the products, as the HAL requires."""
    exponent = state_exponent(call, "cell_state_in")
    previous = _as_int64(call, "cell_state_in")
    forget = logistic(_gate(call, "forget", previous), _GATE_BITS, _WORD)
    candidate = tanh(_gate(call, "cell", previous), _GATE_BITS, _WORD)
    if "input" in cell_gates(call):
        share = logistic(_gate(call, "input", previous), _GATE_BITS, _WORD)
    else:
        share = 2**15 - 1 - forget
    state = saturate(rdiv(forget * previous, 15) + rdiv(share * candidate, 30 + exponent), _WORD)
    state = _clip(call, "cell_clip", "cell_state_in", state)
    output = logistic(_gate(call, "output", state), _GATE_BITS, _WORD)
    scale = 2.0**-15 / call.number("hidden_state_scale") * 2.0**-15
    zero_point = int(np.int64(call.integer("hidden_state_zero_point")).astype(np.int8))
    hidden = rescale(output * tanh(state, 15 + exponent, _WORD), *_encode_multiplier(call, scale)) - zero_point
    out = _project(call, np.clip(hidden, -128, 127), zero_point).astype(np.int8)
    return [out, state.astype(np.int16), out]


def _as_int64(call: OperationCall, name: str) -> Integers:
    return call.array(name).astype(np.int64)


def _scale(call: OperationCall, name: str) -> np.float32:
    return np.float32(call.operand(name).scale)


def _encode_multiplier(call: OperationCall, multiplier: float | np.float32) -> tuple[int, int]:
    """Round a multiplier below 2^31 to float32 and encode it."""
    rounded = float(np.float32(multiplier))
    call.require(rounded < 2**31, f"scales give a multiplier of {rounded:g}; it must be below 2^31")
    return encode(rounded)


def _gate(call: OperationCall, gate: str, state: Integers) -> Integers:
    """Return a gate before its activation, F3: products, peephole with `state` and layer normalization, saturated."""
    norm, peephole = f"{gate}_layer_norm_weights", f"cell_to_{gate}_weights"
    bias = _as_int64(call, BIASES[gate])
    scale = np.float32(call.number(f"{gate}_intermediate_scale"))
    value: Integers = np.zeros((), np.int64)
    for source, weights, offset in (
        ("input", f"input_to_{gate}_weights", 0 if call.has(norm) else bias),
        ("output_state_in", f"recurrent_to_{gate}_weights", 0),
    ):
        centered = _as_int64(call, source) - call.operand(source).zero_point
        factor = _encode_multiplier(call, _scale(call, weights) * _scale(call, source) / scale)
        value = saturate(rescale(_product(call, centered, weights) + offset, *factor) + value, _WORD)
    if call.has(peephole):
        factor = _encode_multiplier(
            call, 2.0 ** state_exponent(call, "cell_state_in") * call.operand(peephole).scale / float(scale)
        )
        value = saturate(rescale(_as_int64(call, peephole) * state, *factor) + value, _WORD)
    if call.has(norm):
        mantissa, exponent = _encode_multiplier(call, _scale(call, norm))
        terms = _normalize(value) * _as_int64(call, norm) + bias
        value = saturate(rescale(rdiv(terms, _NORM_BITS), mantissa, exponent + 12), _WORD)
    return value


def _product(call: OperationCall, rows: Integers, weights: str) -> Integers:
    """Multiply rows by transposed symmetric weights. The result is exact because the sums fit float64."""
    matrix = call.memoize_constant(weights, lambda: np.ascontiguousarray(call.array(weights).T, np.float64), weights)
    return matrix_product(call, rows.astype(np.float64), matrix).astype(np.int64)


def _clip(call: OperationCall, clip: str, tensor: str, value: Integers) -> Integers:
    """Clamp to the argument `clip`, in steps of a tensor's scale. There is no clipping if it is 0 or omitted."""
    real = np.float32(call.number(clip)) if call.has(clip) else np.float32(0)
    largest = np.iinfo(call.array(tensor).dtype).max
    limit = int(np.minimum(real / _scale(call, tensor), largest))
    return np.clip(value, -limit, limit) if limit > 0 else value


def _project(call: OperationCall, hidden: Integers, zero_point: int) -> Integers:
    """Return the hidden state in steps of the output's scale, after the projection if there is one."""
    if not call.has("projection_weights"):
        return hidden
    sums = _product(call, hidden + zero_point, "projection_weights")
    if call.has("projection_bias"):
        sums = sums + _as_int64(call, "projection_bias")
    scale = _scale(call, "projection_weights") * np.float32(call.number("hidden_state_scale"))
    out = (
        rescale(sums, *_encode_multiplier(call, scale / _scale(call, "output_state_in")))
        + call.operand("output_state_in").zero_point
    )
    return _clip(call, "proj_clip", "projection_weights", np.clip(out, -128, 127))


def _normalize(value: Integers) -> Integers:
    """Normalize to mean 0 and variance 1 over the units of each batch, with 10 fraction bits."""
    units = value.shape[-1]
    total = value.sum(axis=-1, keepdims=True)
    mean = np.sign(total) * ((np.abs(total) << _NORM_BITS) // units)
    variance = (value**2).sum(axis=-1, keepdims=True) * (2**20 // units) - mean**2
    return rescale((value << _NORM_BITS) - mean, *inverse_root(variance >> 20))


# ---- QUANTIZED_16BIT_LSTM -------------------------------------------------------------------------------


@kernel(OperationType.QUANTIZED_16BIT_LSTM)
def quantized_16bit_lstm(call: OperationCall) -> list[AnyArray]:
    """Compute one step. The cell state is F4."""
    gates = dict(zip(GATES, np.split(_all_gates(call), len(GATES), axis=-1), strict=True))
    share, forget, output = (logistic(gates[gate], _GATE_BITS, _WORD) for gate in ("input", "forget", "output"))
    candidate = tanh(gates["cell"], _GATE_BITS, _WORD)
    retained = product(forget, _as_int64(call, "prev_cell_state"), _WORD)
    state = saturate(rdiv(product(share, candidate, _WORD), 4) + retained, _WORD)
    hidden = product(output, tanh(convert_bits(state, 4, 3, _WORD), _GATE_BITS, _WORD), _WORD)
    out = np.clip(rdiv(hidden, 8), -128, 127) + 128
    return [state.astype(np.int16), out.astype(np.uint8)]


def _all_gates(call: OperationCall) -> Integers:
    """Return all gates before their activation, F3: [batches, gates * units].

    The data is input, then previous output. The weights are recurrent, then input. The reference and the published
    example match them by position, not by name.
    """
    rows = np.concatenate([call.array("input"), call.array("prev_output")], axis=1).astype(np.float64) - 128
    pairs = [(f"recurrent_to_{gate}_weights", f"input_to_{gate}_weights") for gate in GATES]
    names = [name for pair in pairs for name in pair]
    zero_point = call.operand(names[0]).zero_point

    def stack() -> AnyArray:
        stacked = np.concatenate([np.concatenate([call.array(name) for name in pair], axis=1) for pair in pairs])
        return np.ascontiguousarray(stacked.T, np.float64) - zero_point

    bias = np.concatenate([_as_int64(call, BIASES[gate]) for gate in GATES])
    sums = matrix_product(call, rows, call.memoize_constant("weights", stack, *names)).astype(np.int64) + bias
    return saturate(rescale(sums, *encode(4096 * call.operand(BIASES["input"]).scale)), _WORD)
