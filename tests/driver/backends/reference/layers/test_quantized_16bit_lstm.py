"""QUANTIZED_16BIT_LSTM on CpuRef: cases computed by hand, and comparison with LiteRT."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from nnhal.errors import HalError
from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, run, tensor
from tests.driver.recurrent_arguments import generators, quantized_input, random_stored, sizes


def cell_16bit(rng: np.random.Generator, batches: int, inputs: int, units: int) -> list[Value]:
    """Return the arguments of QUANTIZED_16BIT_LSTM."""
    scale, zero_point = 1 / 50, int(rng.integers(0, 256))
    byte = T.TENSOR_QUANT8_ASYMM
    return [
        random_stored(rng, byte, (batches, inputs), 1 / 128, 128),
        *(random_stored(rng, byte, (units, inputs), scale, zero_point) for _ in range(4)),
        *(random_stored(rng, byte, (units, units), scale, zero_point) for _ in range(4)),
        *(random_stored(rng, T.TENSOR_INT32, (units,), float(np.float32(scale)) / 128) for _ in range(4)),
        random_stored(rng, T.TENSOR_QUANT16_SYMM, (batches, units), 2**-11),
        random_stored(rng, byte, (batches, units), 1 / 128, 128),
    ]


def run_16bit(arguments: Sequence[Value]) -> list[AnyArray]:
    return run(Op.QUANTIZED_16BIT_LSTM, arguments, [arguments[13][0], arguments[14][0]])


def test_16bit_cell_by_hand() -> None:
    # All weights are 0 (their zero point) and biases too: each gate is 1/2, the candidate 0, so half the state remains.
    byte, shape = T.TENSOR_QUANT8_ASYMM, (1, 1)
    weights: Value = (tensor(byte, shape, 0.5, 3), [[3]])
    bias: Value = (tensor(T.TENSOR_INT32, (1,), 0.5 / 128), [0])
    state: Value = (tensor(T.TENSOR_QUANT16_SYMM, shape, 2**-11), [[4096]])  # 2.0
    one: Value = (tensor(byte, shape, 1 / 128, 128), [[255]])
    state_out, out = run_16bit([one, *[weights] * 8, *[bias] * 4, state, one])
    assert state_out.item() == 2048  # 1.0
    # 1/2 * tanh(1) = 0.3808, in steps of 1/128: 48.7
    assert out.item() == 128 + 49


@pytest.mark.parametrize(
    ("position", "operand", "message"),
    [
        (0, tensor(T.TENSOR_QUANT8_ASYMM, (2, 3), 1 / 64, 128), "input has scale 0.015625, zero point 128; it must"),
        (
            14,
            tensor(T.TENSOR_QUANT8_ASYMM, (2, 4), 1 / 128, 0),
            "prev_output has scale 0.0078125, zero point 0; it must",
        ),
        (3, tensor(T.TENSOR_QUANT8_ASYMM, (4, 3), 1 / 50, 255), "input_to_cell_weights has scale 0.02, zero point 255"),
        (11, tensor(T.TENSOR_INT32, (4,), 1), "cell_bias has scale 1"),
        (13, tensor(T.TENSOR_QUANT16_SYMM, (2, 4), 2**-10), r"prev_cell_state has scale 2\^-10; it must be 2\^-11"),
        (13, tensor(T.TENSOR_QUANT16_SYMM, (2, 3), 2**-11), "prev_cell_state has shape"),
        (7, tensor(T.TENSOR_QUANT8_ASYMM, (4, 3), 1 / 50, 7), r"recurrent_to_cell_weights has shape \[4, 3\]"),
        (9, tensor(T.TENSOR_INT32, (3,), 1 / 6400), r"input_gate_bias has shape \[3\]"),
    ],
)
def test_broken_constraint_fails_the_16bit_run(position: int, operand: Operand, message: str) -> None:
    arguments = cell_16bit(np.random.default_rng(0), 2, 3, 4)
    outputs = [replace(arguments[i][0], dimensions=()) for i in (13, 14)]
    run(Op.QUANTIZED_16BIT_LSTM, arguments, outputs)
    arguments[position] = (operand, np.ones(operand.dimensions))
    with pytest.raises(HalError, match=message):
        run(Op.QUANTIZED_16BIT_LSTM, arguments, outputs)


@settings(max_examples=25, deadline=None)
@given(generators, sizes, sizes, sizes)
def test_16bit_agrees_with_litert(rng: np.random.Generator, batches: int, inputs: int, units: int) -> None:
    arguments = cell_16bit(rng, batches, inputs, units)
    state, out = run_16bit(arguments)
    # TFLite's gates are input, cell, forget, output, in one matrix; CpuRef's docstring says why recurrent comes first
    rows = [np.concatenate([arguments[4 + g][1], arguments[g][1]], axis=1) for g in (1, 3, 2, 4)]
    biases = np.concatenate([np.asarray(arguments[8 + g][1]) for g in (1, 3, 2, 4)])
    weights, bias = arguments[1][0], arguments[9][0]
    theirs = litert(
        "LSTM",
        _basic(),
        [
            quantized_input(arguments[0]),
            quantized_input(arguments[14], True),
            quantized_input((replace(weights, dimensions=(4 * units, inputs + units)), np.concatenate(rows))),
            quantized_input((replace(bias, dimensions=(4 * units,)), biases)),
            quantized_input(arguments[13], True),
        ],
        [
            arguments[14][0],
            arguments[13][0],
            tensor(T.TENSOR_QUANT8_ASYMM, (batches, inputs + units), 1 / 128, 128),
            tensor(T.TENSOR_QUANT16_SYMM, (batches, 4 * units), 2**-12),
        ],
    )
    np.testing.assert_array_equal(out, theirs[0])
    np.testing.assert_array_equal(state, theirs[1])


def _basic() -> object:
    options = schema().LSTMOptionsT()
    options.kernelType, options.fusedActivationFunction = schema().LSTMKernelType.BASIC, 4
    options.cellClip = options.projClip = 0.0
    return options
