"""QUANTIZED_LSTM on CpuRef: comparison with the same cell in floats, and with LiteRT."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, float32, int32, run, tensor
from tests.driver.recurrent_arguments import float_value, floats, generators, quantized_input, random_stored

BATCHES, INPUTS, UNITS = 2, 3, 4
STATE_SCALE = 2.0**-11
INTERMEDIATE = 2.0**-12
"""Scale of the gates before their activation, which takes 12 fraction bits without layer normalization."""
NORM_SCALE = 2.0**-15


@dataclass(frozen=True)
class Parts:
    """Optional parts of a cell. `output` is the output size, or None without a projection."""

    input_gate: bool
    norm: bool
    peephole: bool = False
    output: int | None = None


def absent(value: Value) -> Value:
    return replace(value[0], dimensions=(0,) * len(value[0].dimensions)), None


def quantized_cell(rng: np.random.Generator, parts: Parts) -> list[Value]:
    """Return the arguments of QUANTIZED_LSTM."""
    output = parts.output or UNITS
    scales = (1 / 64, 1 / 128, 1 / 60)  # input, weights, output

    def optional(present: bool, type_: T, shape: Sequence[int], scale: float) -> Value:
        value = random_stored(rng, type_, shape, scale)
        return value if present else absent(value)

    gates = [parts.input_gate, True, True, True]
    matrix, row = T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT16_SYMM
    bias_scale = NORM_SCALE / 1024 if parts.norm else scales[0] * scales[1]
    return [
        random_stored(rng, T.TENSOR_QUANT8_ASYMM_SIGNED, (BATCHES, INPUTS), scales[0], 5),
        *(optional(gate, matrix, (UNITS, INPUTS), scales[1]) for gate in gates),
        *(optional(gate, matrix, (UNITS, output), scales[1]) for gate in gates),
        *(optional(parts.peephole and (gate or i > 0), row, (UNITS,), 2.0**-13) for i, gate in enumerate(gates[:3])),
        *(optional(gate, T.TENSOR_INT32, (UNITS,), bias_scale) for gate in gates),
        optional(parts.output is not None, matrix, (output, UNITS), 1 / 128),
        optional(parts.output is not None, T.TENSOR_INT32, (output,), 1 / 128**2),
        random_stored(rng, T.TENSOR_QUANT8_ASYMM_SIGNED, (BATCHES, output), scales[2], -3 if parts.output else 0),
        random_stored(rng, row, (BATCHES, UNITS), STATE_SCALE),
        *(optional(parts.norm and gate, row, (UNITS,), NORM_SCALE) for gate in gates),
        float32(0),
        float32(0),
        *[float32(INTERMEDIATE)] * 4,
        int32(0),
        float32(1 / 128 if parts.output else scales[2]),
    ]


def outputs_of(arguments: Sequence[Value]) -> list[Operand]:
    return [arguments[18][0], arguments[19][0], arguments[18][0]]


def as_floats(arguments: Sequence[Value]) -> list[Value]:
    """Return the arguments of LSTM with the same real values."""
    out: list[Value] = []
    for operand, value in arguments[:24]:
        if value is None:
            out.append((tensor(T.TENSOR_FLOAT32, operand.dimensions), None))
        else:
            out.append(float_value((np.asarray(value, np.float64) - operand.zero_point) * operand.scale))
    return [*out[:20], int32(4), arguments[24], arguments[25], *out[20:]]


CELLS = [
    Parts(input_gate=True, norm=False),
    Parts(input_gate=False, norm=False),
    Parts(input_gate=True, norm=False, peephole=True),
    Parts(input_gate=False, norm=False, peephole=True, output=3),
    Parts(input_gate=True, norm=True),
    Parts(input_gate=True, norm=True, peephole=True, output=6),
    Parts(input_gate=False, norm=True, output=3),
]


@pytest.mark.parametrize("cell_clip", [0, 0.5])
@pytest.mark.parametrize("parts", CELLS)
def test_agrees_with_the_cell_in_floats(parts: Parts, cell_clip: float) -> None:
    arguments = quantized_cell(np.random.default_rng(0), parts)
    arguments[24] = float32(cell_clip)
    copied, state, out = run(Op.QUANTIZED_LSTM, arguments, outputs_of(arguments))
    _, hidden, real_state, _ = run(Op.LSTM, as_floats(arguments), floats((), (), (), ()))
    np.testing.assert_array_equal(copied, out)
    # a gate has an error of a few steps of 2^-12
    np.testing.assert_allclose(state * STATE_SCALE, real_state, atol=6e-3)
    if cell_clip:
        assert np.abs(state).max() == cell_clip / STATE_SCALE
    operand = arguments[18][0]
    np.testing.assert_allclose((out.astype(int) - operand.zero_point) * operand.scale, hidden, atol=2.5e-2)


def test_projection_is_clipped_in_steps_of_its_weights() -> None:
    arguments = quantized_cell(np.random.default_rng(0), Parts(input_gate=True, norm=True, output=3))
    plain = run(Op.QUANTIZED_LSTM, arguments, outputs_of(arguments))[2]
    arguments[25] = float32(0.0625)
    clipped = run(Op.QUANTIZED_LSTM, arguments, outputs_of(arguments))[2]
    assert plain.min() < -8
    assert plain.max() > 8
    np.testing.assert_array_equal(clipped, np.clip(plain, -8, 8))  # 0.0625 * 128


def test_hidden_zero_point_is_subtracted_and_taken_back_by_the_projection() -> None:
    arguments = quantized_cell(np.random.default_rng(1), Parts(input_gate=True, norm=False, output=3))
    plain = run(Op.QUANTIZED_LSTM, arguments, outputs_of(arguments))[2]
    arguments[30] = int32(256 + 7)  # only the low byte is used
    np.testing.assert_array_equal(run(Op.QUANTIZED_LSTM, arguments, outputs_of(arguments))[2], plain)
    straight = quantized_cell(np.random.default_rng(1), Parts(input_gate=True, norm=False))
    plain = run(Op.QUANTIZED_LSTM, straight, outputs_of(straight))[2]
    straight[30] = int32(7)
    np.testing.assert_array_equal(run(Op.QUANTIZED_LSTM, straight, outputs_of(straight))[2], plain - 7)


def test_omitted_clips_are_none() -> None:
    arguments = quantized_cell(np.random.default_rng(2), Parts(input_gate=True, norm=True, output=3))
    plain = run(Op.QUANTIZED_LSTM, arguments, outputs_of(arguments))
    arguments[24:26] = (Operand(T.FLOAT32), None), (Operand(T.FLOAT32), None)
    for output, other in zip(run(Op.QUANTIZED_LSTM, arguments, outputs_of(arguments)), plain, strict=True):
        np.testing.assert_array_equal(output, other)


def symm16(shape: Sequence[int], scale: float) -> Value:
    return tensor(T.TENSOR_QUANT16_SYMM, shape, scale), np.ones(shape)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({19: symm16((BATCHES, UNITS), 0.0005)}, "cell_state_in has scale 0.0005; it must be a power of two"),
        ({19: symm16((BATCHES, UNITS), 2**-8)}, r"cell_state_in has scale 2\^-8; it must be in 2\^-15\.\.2\^-9"),
        ({19: symm16((BATCHES, UNITS), 2**-16)}, r"cell_state_in has scale 2\^-16"),
        ({19: symm16((BATCHES, 3), 2**-11)}, r"cell_state_in has shape \[2, 3\]; it must be \[2, 4\]"),
        ({20: symm16((3,), 2**-15)}, r"input_layer_norm_weights has shape \[3\]"),
        ({22: (tensor(T.TENSOR_QUANT16_SYMM, (0,), 1), None)}, "cannot be given without cell_layer_norm_weights"),
        ({24: float32(-1)}, "cell_clip is -1; it must be >= 0"),
        ({27: float32(0)}, "forget_intermediate_scale is 0; it must be > 0"),
        ({28: float32(1e-40)}, r"scales give a multiplier of .*; it must be below 2\^31"),
        ({31: float32(0)}, "hidden_state_scale is 0; it must be > 0"),
    ],
)
def test_broken_constraint_fails_the_run(changes: dict[int, Value], message: str) -> None:
    arguments = quantized_cell(np.random.default_rng(0), Parts(input_gate=True, norm=True, output=3))
    outputs = [replace(output, dimensions=()) for output in outputs_of(arguments)]
    with pytest.raises(HalError, match=message):
        run(Op.QUANTIZED_LSTM, [changes.get(i, value) for i, value in enumerate(arguments)], outputs)


@settings(max_examples=25, deadline=None)
@given(generators, st.booleans(), st.booleans(), st.sampled_from([None, 3, 6]))
def test_agrees_with_litert(rng: np.random.Generator, input_gate: bool, norm: bool, output: int | None) -> None:
    arguments = quantized_cell(rng, Parts(input_gate, norm, output=output))
    _, state, out = run(Op.QUANTIZED_LSTM, arguments, outputs_of(arguments))
    inputs = [quantized_input(value, i in {18, 19}) for i, value in enumerate(arguments[:24])]
    options = schema().LSTMOptionsT()
    options.fusedActivationFunction, options.cellClip, options.projClip = 4, 0.0, 0.0
    gate, hidden = tensor(T.TENSOR_QUANT16_SYMM, (1,), INTERMEDIATE), T.TENSOR_QUANT8_ASYMM_SIGNED
    intermediates = [*[gate] * 4, tensor(hidden, (1,), float(np.asarray(arguments[31][1])))]
    theirs, _, their_state = litert("LSTM", options, inputs, [arguments[18][0]], intermediates)
    np.testing.assert_array_equal(out, theirs)
    np.testing.assert_array_equal(state, their_state)
