"""Import of recurrent layers: order of arguments, states that are zeros, and what is refused."""

import re
from typing import Any

import numpy as np
import pytest

from nnhal import tflite
from nnhal.tflite import TfliteError
from nnhal.tflite.import_model import import_model
from nnhal.tflite.variables import CELL_STATE
from nnhal.types import OperandLifeTime, OperationType
from tests.nnhal.tflite.build import Op, Tensor, arguments, build, listing, options, value_of

TANH, NONE = 4, 0
BATCHES, STEPS, INPUTS, UNITS = 2, 4, 3, 5


def weights(*shape: int) -> Tensor:
    size = 1
    for length in shape:
        size *= length
    return Tensor(shape, data=[0.5] * size)


def state(*shape: int) -> Tensor:
    return Tensor(shape, more={"isVariable": True})


def rnn_cell(state_: Tensor | None = None) -> list[Tensor]:
    return [weights(UNITS, INPUTS), weights(UNITS, UNITS), weights(UNITS), state_ or state(BATCHES, UNITS)]


def lstm_cell(*, input_gate: bool = True) -> list[Tensor | None]:
    def gates(*shape: int) -> list[Tensor | None]:
        return [weights(*shape) if input_gate or i else None for i in range(4)]

    return [*gates(UNITS, INPUTS), *gates(UNITS, UNITS), None, None, None, *gates(UNITS), None, None]


def sequence() -> Tensor:
    return Tensor((BATCHES, STEPS, INPUTS))


def step() -> Tensor:
    return Tensor((BATCHES, INPUTS))


def result(*, steps: bool) -> Tensor:
    return Tensor((BATCHES, STEPS, UNITS) if steps else (BATCHES, UNITS))


def rnn(activation: int = TANH) -> Op:
    return Op("RNN", [step(), *rnn_cell()], [result(steps=False)], options("RNN", fusedActivationFunction=activation))


def lstm(activation: int = TANH, *, input_gate: bool = True, state_: Tensor | None = None, **more: Any) -> Op:
    states = [state_ or state(BATCHES, UNITS), state(BATCHES, UNITS)]
    table = options("LSTM", fusedActivationFunction=activation, cellClip=0.5, **more)
    return Op("LSTM", [step(), *lstm_cell(input_gate=input_gate), *states], [result(steps=False)], table)


def bidirectional_rnn(*auxiliary: Tensor | None) -> Op:
    table = options("BidirectionalSequenceRNN", fusedActivationFunction=TANH, mergeOutputs=False, timeMajor=False)
    inputs = [sequence(), *rnn_cell(), *rnn_cell(), *auxiliary]
    return Op("BIDIRECTIONAL_SEQUENCE_RNN", inputs, [result(steps=True), result(steps=True)], table)


@pytest.mark.parametrize(
    "op, expected",
    [
        (rnn(), "RNN in0 const const const const 4 -> tmp out0"),
        (rnn(NONE), "RNN in0 const const const const 0 -> tmp out0"),
        (
            Op(
                "UNIDIRECTIONAL_SEQUENCE_RNN",
                [sequence(), *rnn_cell()],
                [result(steps=True)],
                options("SequenceRNN", fusedActivationFunction=1, timeMajor=False),
            ),
            "UNIDIRECTIONAL_SEQUENCE_RNN in0 const const const const 1 0 -> out0",
        ),
        (
            bidirectional_rnn(None, None, None),
            "BIDIRECTIONAL_SEQUENCE_RNN in0" + " const" * 8 + " none none none 4 False False -> out0 out1",
        ),
        (
            lstm(),
            "LSTM in0" + " const" * 8 + " none none none const const const const none none const const 4 0.5 0.0"
            " -> tmp tmp tmp out0",
        ),
        (
            Op(
                "SVDF",
                [step(), weights(10, INPUTS), weights(10, 6), None, state(BATCHES, 60)],
                [result(steps=False)],
                options("SVDF", rank=2, fusedActivationFunction=1),
            ),
            "SVDF in0 const const none const 2 1 -> tmp out0",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
def test_conversion(op: Op, expected: str) -> None:
    (line,) = listing(tflite.parse(build(op), extension=False))
    assert re.sub(r"tmp\d+", "tmp", line) == expected


def test_sequence_lstm_has_the_arguments_of_nnapi_in_order() -> None:
    states = [state(BATCHES, UNITS), state(BATCHES, UNITS)]
    norms = [weights(UNITS) for _ in range(4)]
    table = options("UnidirectionalSequenceLSTM", fusedActivationFunction=TANH, projClip=0.25, timeMajor=False)
    inputs = [sequence(), *lstm_cell(), *states, *norms]
    model = tflite.parse(build(Op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [result(steps=True)], table)))
    (line,) = listing(model)
    assert line.endswith(" const const 4 0.0 0.25 False const const const const -> out0")
    assert model.main.operations[0].type == OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM


@pytest.mark.parametrize("input_gate, gates", [(True, 4), (False, 3)])
def test_scratch_buffer_has_a_part_for_each_gate(input_gate: bool, gates: int) -> None:
    scratch = arguments(tflite.parse(build(lstm(input_gate=input_gate))))[-4]
    assert (scratch.dimensions, scratch.lifetime) == ((BATCHES, gates * UNITS), OperandLifeTime.TEMPORARY_VARIABLE)


def test_states_are_zeros() -> None:
    model = tflite.parse(build(lstm()))
    for operand in arguments(model)[18:20]:
        assert not value_of(model, operand).any()


@pytest.mark.parametrize(
    "op, reason",
    [
        (lstm(NONE), "activation 0 of the cell"),
        (lstm(kernelType=1), "basic kernel"),
        (lstm(state_=weights(BATCHES, UNITS)), "is a state, but not a variable"),
        (bidirectional_rnn(sequence(), None, None), "ignores the auxiliary input"),
        (
            Op(
                "RNN",
                [step(), Tensor((UNITS, INPUTS), "INT8", [1] * 15, (0.5,), (0,)), *rnn_cell()[1:]],
                [result(steps=False)],
                options("RNN", fusedActivationFunction=TANH),
            ),
            "is not float32",
        ),
    ],
    ids=["activation", "kernel", "state", "auxiliary", "weights"],
)
def test_what_nnapi_computes_otherwise_is_refused(op: Op, reason: str) -> None:
    with pytest.raises(TfliteError, match=reason):
        tflite.parse(build(op), extension=False)


@pytest.mark.parametrize(
    ("op", "last"),
    [
        (rnn(), "-> out1 out0"),
        (lstm(), "-> tmp23 out1 out2 out0"),
        (Op("UNIDIRECTIONAL_SEQUENCE_RNN", [sequence(), *rnn_cell()], [result(steps=True)]), "-> out0 out1"),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
def test_states_can_be_inputs_and_outputs(op: Op, last: str) -> None:
    model, report = import_model(np.frombuffer(build(op), np.uint8), extension=False, shapes={}, stateful=True)
    assert model is not None and report.regions == 0
    (line,) = listing(model)
    assert line.endswith(last), line
    assert [(state.input_index, state.output_index) for state in model.states] == [
        (number, number) for number in range(1, len(model.main.output_indexes))
    ]
    assert all(state.name.startswith(CELL_STATE) and not state.initial.any() for state in model.states)


@pytest.mark.parametrize(
    "op", [lstm(NONE), rnn(5), lstm(state_=Tensor((BATCHES, UNITS), "FLOAT16", more={"isVariable": True}))]
)
def test_layer_that_nnapi_lacks_keeps_its_states_to_itself(op: Op) -> None:
    report = import_model(np.frombuffer(build(op), np.uint8), extension=True, shapes={}, stateful=True)[1]
    assert all(len(each.operator.outputs) == 1 for each in report.operators)
