"""Kernels of QUANTIZED_LSTM and QUANTIZED_16BIT_LSTM: cells in 16-bit fixed point.

Arrays are int64 that hold int16 values; Fk below is an int16 with k integer bits (see gemmlowp).
"""

import numpy as np

from driver.backends.reference.fixed_point import Integers, encode, rdiv, rescale
from driver.backends.reference.gemmlowp import change, logistic, product, saturated, tanh
from driver.backends.reference.kernel import kernel
from driver.operations.call import Call
from driver.operations.lstm import BIASES, GATES, gates_of
from driver.operations.quantized_lstm import state_exponent
from nnhal.types import AnyArray, OperationType

_WORD = 16
_GATE_BITS = 3
"""Integer bits of a gate before its activation."""
_NORM_BITS = 10
"""Fraction bits of the mean and of normalised values."""
_NEWTON_STEPS = 5

# ---- QUANTIZED_LSTM -------------------------------------------------------------------------------------


@kernel(OperationType.QUANTIZED_LSTM)
def quantized_lstm(call: Call) -> list[AnyArray]:
    """One step. Without layer normalisation the biases belong to the products, as the HAL says."""
    exponent = state_exponent(call, "cell_state_in")
    previous = _integers(call, "cell_state_in")
    forget = logistic(_gate(call, "forget", previous), _GATE_BITS, _WORD)
    fresh = tanh(_gate(call, "cell", previous), _GATE_BITS, _WORD)
    if "input" in gates_of(call):
        share = logistic(_gate(call, "input", previous), _GATE_BITS, _WORD)
    else:
        share = 2**15 - 1 - forget
    state = saturated(rdiv(forget * previous, 15) + rdiv(share * fresh, 30 + exponent), _WORD)
    state = _clipped(call, "cell_clip", "cell_state_in", state)
    output = logistic(_gate(call, "output", state), _GATE_BITS, _WORD)
    scale = 2.0**-15 / call.number("hidden_state_scale") * 2.0**-15
    zero_point = int(np.int64(call.integer("hidden_state_zero_point")).astype(np.int8))
    hidden = rescale(output * tanh(state, 15 + exponent, _WORD), *_encoded(call, scale)) - zero_point
    out = _projected(call, np.clip(hidden, -128, 127), zero_point).astype(np.int8)
    return [out, state.astype(np.int16), out]


def _integers(call: Call, name: str) -> Integers:
    return call.array(name).astype(np.int64)


def _scale(call: Call, name: str) -> np.float32:
    return np.float32(call.operand(name).scale)


def _encoded(call: Call, multiplier: float | np.float32) -> tuple[int, int]:
    """Multipliers are float32 before they are encoded.

    Raises:
        HalError: GENERAL_FAILURE: the multiplier is too large.
    """
    rounded = float(np.float32(multiplier))
    call.require(rounded < 2**31, f"scales give a multiplier of {rounded:g}; it must be below 2^31")
    return encode(rounded)


def _gate(call: Call, gate: str, state: Integers) -> Integers:
    """A gate before its activation, F3: products, peephole with `state`, layer normalisation; each saturated."""
    norm, peephole = f"{gate}_layer_norm_weights", f"cell_to_{gate}_weights"
    bias = _integers(call, BIASES[gate])
    scale = np.float32(call.number(f"{gate}_intermediate_scale"))
    value: Integers = np.zeros((), np.int64)
    for source, weights, offset in (
        ("input", f"input_to_{gate}_weights", 0 if call.has(norm) else bias),
        ("output_state_in", f"recurrent_to_{gate}_weights", 0),
    ):
        centred = _integers(call, source) - call.operand(source).zero_point
        factor = _encoded(call, _scale(call, weights) * _scale(call, source) / scale)
        value = saturated(rescale(_product(call, centred, weights) + offset, *factor) + value, _WORD)
    if call.has(peephole):
        factor = _encoded(
            call, 2.0 ** state_exponent(call, "cell_state_in") * call.operand(peephole).scale / float(scale)
        )
        value = saturated(rescale(_integers(call, peephole) * state, *factor) + value, _WORD)
    if call.has(norm):
        mantissa, exponent = _encoded(call, _scale(call, norm))
        terms = _normalized(value) * _integers(call, norm) + bias
        value = saturated(rescale(rdiv(terms, _NORM_BITS), mantissa, exponent + 12), _WORD)
    return value


def _product(call: Call, rows: Integers, weights: str) -> Integers:
    """Rows times symmetric weights, transposed; exact, since the sums fit float64."""
    matrix = call.once(weights, lambda: np.ascontiguousarray(call.array(weights).T, np.float64), weights)
    return (rows.astype(np.float64) @ matrix).astype(np.int64)


def _clipped(call: Call, clip: str, scaled_as: str, value: Integers) -> Integers:
    """Clamped to a clip, which is 0 or omitted for none, in steps of the tensor `scaled_as`."""
    real = np.float32(call.number(clip)) if call.has(clip) else np.float32(0)
    largest = np.iinfo(call.array(scaled_as).dtype).max
    limit = int(np.minimum(real / _scale(call, scaled_as), largest))
    return np.clip(value, -limit, limit) if limit > 0 else value


def _projected(call: Call, hidden: Integers, zero_point: int) -> Integers:
    """The hidden state in the output's steps."""
    if not call.has("projection_weights"):
        return hidden
    sums = _product(call, hidden + zero_point, "projection_weights")
    if call.has("projection_bias"):
        sums = sums + _integers(call, "projection_bias")
    scale = _scale(call, "projection_weights") * np.float32(call.number("hidden_state_scale"))
    out = (
        rescale(sums, *_encoded(call, scale / _scale(call, "output_state_in")))
        + call.operand("output_state_in").zero_point
    )
    return _clipped(call, "proj_clip", "projection_weights", np.clip(out, -128, 127))


def _normalized(value: Integers) -> Integers:
    """Mean 0 and variance 1 over the units of each batch, with 10 fraction bits."""
    units = value.shape[-1]
    total = value.sum(axis=-1, keepdims=True)
    mean = np.sign(total) * ((np.abs(total) << _NORM_BITS) // units)
    variance = (value**2).sum(axis=-1, keepdims=True) * (2**20 // units) - mean**2
    return rescale((value << _NORM_BITS) - mean, *inverse_root(variance >> 20))


def inverse_root(a: Integers) -> tuple[Integers, Integers]:
    """1 / sqrt(a) of int32 values as mantissas and exponents for `rescale`; 1 or less gives 1."""
    large = a >= 2**29
    scaled = np.where(large, a >> 2, np.maximum(a, 2))
    bits = np.frexp(scaled.astype(np.float64))[1].astype(np.int64)
    pairs = (31 - bits) // 2 - 1
    shift = 11 + large - pairs
    half = rdiv((scaled << (2 * pairs)) >> 1, 1)
    y: Integers = np.full_like(a, 2**28)
    for _ in range(_NEWTON_STEPS):
        cube = saturated(product(product(y, y), y) << 6, 32)
        y = saturated((product(402653184, y) - product(half, cube)) << 3, 32)
    y = product(y, 1518500250) << np.maximum(-shift, 0)
    return np.where(a <= 1, 2**31 - 1, y), np.where(a <= 1, 0, -np.maximum(shift, 0))


# ---- QUANTIZED_16BIT_LSTM -------------------------------------------------------------------------------


@kernel(OperationType.QUANTIZED_16BIT_LSTM)
def quantized_16bit_lstm(call: Call) -> list[AnyArray]:
    """One step; the cell state is F4."""
    gates = dict(zip(GATES, np.split(_all_gates(call), len(GATES), axis=-1), strict=True))
    share, forget, output = (logistic(gates[gate], _GATE_BITS, _WORD) for gate in ("input", "forget", "output"))
    fresh = tanh(gates["cell"], _GATE_BITS, _WORD)
    kept = product(forget, _integers(call, "prev_cell_state"), _WORD)
    state = saturated(rdiv(product(share, fresh, _WORD), 4) + kept, _WORD)
    hidden = product(output, tanh(change(state, 4, 3, _WORD), _GATE_BITS, _WORD), _WORD)
    out = np.clip(rdiv(hidden, 8), -128, 127) + 128
    return [state.astype(np.int16), out.astype(np.uint8)]


def _all_gates(call: Call) -> Integers:
    """All gates before their activation, F3: [batches, gates * units].

    The rows are input, then previous output; the weights' rows are recurrent, then input. So the reference has it, and
    the published example: position by position, not name by name.
    """
    rows = np.concatenate([call.array("input"), call.array("prev_output")], axis=1).astype(np.float64) - 128
    pairs = [(f"recurrent_to_{gate}_weights", f"input_to_{gate}_weights") for gate in GATES]
    names = [name for pair in pairs for name in pair]
    zero_point = call.operand(names[0]).zero_point

    def stack() -> AnyArray:
        stacked = np.concatenate([np.concatenate([call.array(name) for name in pair], axis=1) for pair in pairs])
        return np.ascontiguousarray(stacked.T, np.float64) - zero_point

    bias = np.concatenate([_integers(call, BIASES[gate]) for gate in GATES])
    sums = (rows @ call.once("weights", stack, *names)).astype(np.int64) + bias
    return saturated(rescale(sums, *encode(4096 * call.operand(BIASES["input"]).scale)), _WORD)
