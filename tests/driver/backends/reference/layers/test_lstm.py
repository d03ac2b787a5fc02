"""LSTM on CpuRef: cases computed by hand, and broken constraints of all float LSTMs."""

from math import exp, tanh

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import OperationType as Op
from tests.driver.lstm_arguments import Parts, bidirectional, cell, norm_weights, scalars, states
from tests.driver.one_operation import Value, boolean, float32, int32, run
from tests.driver.recurrent_arguments import float_value, floats, omitted, random_floats

NONE, RELU, RELU6, TANH, SIGMOID = (0, 1, 3, 4, 6)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


# ---- By hand: one batch, one unit, the input is 1 and the output state 2 --------------------------------
# A gate before its activation is then w * 1 + r * 2 + b: z_i = 0.6, z_f = -0.3, z_c = 0.9, z_o = 0.1.

WEIGHTS = {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4, 5: 0.2, 6: -0.3, 7: 0.25, 8: -0.2}
BIASES = {12: 0.1, 13: 0.1, 14: 0.1, 15: 0.1}
STATE = 0.5


def by_hand(
    changes: dict[int, Value], activation: int = TANH, clips: tuple[float, float] = (0, 0)
) -> tuple[float, ...]:
    """Run one step of the cell above with some arguments changed. Return h and C."""
    arguments = [omitted(1)] * 27
    for i, value in WEIGHTS.items():
        arguments[i] = float_value([[value]])
    for i, value in BIASES.items():
        arguments[i] = float_value([value])
    arguments[16] = omitted(2)
    arguments[0], arguments[18], arguments[19] = float_value([[1]]), float_value([[2]]), float_value([[STATE]])
    arguments[20:23] = [int32(activation), float32(clips[0]), float32(clips[1])]
    for i, argument in changes.items():
        arguments[i] = argument
    scratch, hidden, state, output = run(Op.LSTM, arguments, floats((), (1, 1), (1, 1), (1, 1)))
    assert scratch.shape == (1, 3 if arguments[1][1] is None else 4)
    np.testing.assert_array_equal(hidden, output)
    return hidden.item(), state.item()


def expected(i: float, f: float, c: float, o: float) -> tuple[float, float]:
    """Compute h and C from the gates before their activation."""
    state = sigmoid(f) * STATE + sigmoid(i) * tanh(c)
    return sigmoid(o) * tanh(state), state


CIFG = {1: omitted(2), 5: omitted(2), 12: omitted(1)}


def test_cell_by_hand() -> None:
    assert by_hand({}) == pytest.approx(expected(0.6, -0.3, 0.9, 0.1), rel=1e-6)


def test_without_input_gate_it_is_one_minus_forget() -> None:
    # 1 - sigmoid(x) = sigmoid(-x)
    assert by_hand(CIFG) == pytest.approx(expected(0.3, -0.3, 0.9, 0.1), rel=1e-6)


def test_peepholes_see_the_old_state_and_the_output_gate_the_new_one() -> None:
    hidden, state = by_hand({9: float_value([1]), 10: float_value([2]), 11: float_value([3])})
    _, new = expected(0.6 + STATE, -0.3 + 2 * STATE, 0.9, 0)
    assert state == pytest.approx(new, rel=1e-6)
    assert hidden == pytest.approx(sigmoid(0.1 + 3 * new) * tanh(new), rel=1e-6)


def test_projection_with_bias_and_clips() -> None:
    # the cell state would be 0.67
    hidden, state = by_hand({16: float_value([[2]]), 17: float_value([0.25])}, clips=(0.4, 0.6))
    assert state == pytest.approx(0.4)
    assert sigmoid(0.1) * tanh(0.4) * 2 + 0.25 > 0.6
    assert hidden == pytest.approx(0.6)
    unclipped, _ = by_hand({16: float_value([[2]])})
    assert unclipped == pytest.approx(expected(0.6, -0.3, 0.9, 0.1)[0] * 2, rel=1e-6)


def test_proj_clip_needs_a_projection() -> None:
    assert by_hand({}, clips=(0, 0.01))[0] == pytest.approx(expected(0.6, -0.3, 0.9, 0.1)[0], rel=1e-6)


@pytest.mark.parametrize(("activation", "g"), [(NONE, 0.9), (RELU, 0.9), (RELU6, 0.9), (SIGMOID, sigmoid(0.9))])
def test_activation_is_of_cell_input_and_of_cell_state(activation: int, g: float) -> None:
    state = sigmoid(-0.3) * STATE + sigmoid(0.6) * g
    out = sigmoid(state) if activation == SIGMOID else state
    assert by_hand({}, activation) == pytest.approx((sigmoid(0.1) * out, state), rel=1e-6)


def test_layer_normalization_by_hand() -> None:
    # Two units without recurrence: before normalization each gate is (3, 1), after it (1, -1), so only the norm weights
    # and the biases matter. The bias is added after the normalization, otherwise its (9, 0) would change the signs.
    arguments: list[Value] = [
        float_value([[1]]),
        *[float_value([[3], [1]])] * 4,
        *[float_value(np.zeros((2, 2)))] * 4,
        *[omitted(1)] * 3,
    ]
    arguments += [float_value([0, 9])] * 4 + [omitted(2), omitted(1), float_value([[0, 0]]), float_value([[1, 1]])]
    arguments += [int32(NONE), float32(0), float32(0)]
    arguments += [float_value([1, 1]), float_value([2, 2]), float_value([3, 3]), float_value([4, 4])]
    _, hidden, state, _ = run(Op.LSTM, arguments, floats((), (1, 2), (1, 2), (1, 2)))
    first = sigmoid(2) * 1 + sigmoid(1) * 3
    second = sigmoid(-2 + 9) * 1 + sigmoid(-1 + 9) * (-3 + 9)
    np.testing.assert_allclose(state, [[first, second]], rtol=1e-5)
    np.testing.assert_allclose(hidden, [[sigmoid(4) * first, sigmoid(-4 + 9) * second]], rtol=1e-5)


# ---- Broken constraints ---------------------------------------------------------------------------------


def valid(type_: Op) -> list[Value]:
    """Return arguments of a cell with all parts: 2 batches, 3 inputs, 4 units, 5 outputs."""
    rng, size = np.random.default_rng(0), (2, 3, 4, 5)
    if type_ == Op.BIDIRECTIONAL_SEQUENCE_LSTM:
        values = [*bidirectional(rng, Parts(), (3, size), "cross"), *scalars(), boolean(False), boolean(True)]
        return [*values, *norm_weights(rng, Parts(), 4), *norm_weights(rng, Parts(), 4)]
    shape, flag = ((2, 3), []) if type_ == Op.LSTM else ((3, 2, 3), [boolean(True)])
    weights = [random_floats(rng, *shape), *cell(rng, Parts(), size), *states(rng, size)]
    return [*weights, *scalars(), *flag, *norm_weights(rng, Parts(), 4)]


OUTPUTS = {Op.LSTM: 4, Op.UNIDIRECTIONAL_SEQUENCE_LSTM: 1, Op.BIDIRECTIONAL_SEQUENCE_LSTM: 2}
ONES, SQUARE = float_value(np.ones(9)), float_value(np.ones((9, 9)))
CONSTRAINTS: list[tuple[Op, dict[int, Value], str]] = [
    (Op.LSTM, {0: ONES}, "input has rank 1; it must be 2"),
    (Op.LSTM, {1: omitted(2)}, "cannot be given without input_to_input_weights: all or none"),
    (Op.LSTM, {12: omitted(1)}, "cannot be given without input_gate_bias: all or none"),
    (Op.LSTM, CIFG, "input_layer_norm_weights cannot be given without an input gate"),
    (Op.LSTM, {9: omitted(1)}, "cannot be given without cell_to_input_weights: all or none"),
    (Op.LSTM, {11: omitted(1)}, "cannot be given without cell_to_output_weights: all or none"),
    (Op.LSTM, {23: omitted(1)}, "cannot be given without input_layer_norm_weights: all or none"),
    (Op.LSTM, {16: omitted(2)}, "projection_bias cannot be given without projection_weights"),
    (Op.LSTM, {16: omitted(2), 17: omitted(1)}, "5 columns; without projection it must have one for each of the 4"),
    (
        Op.LSTM,
        {**CIFG, 10: omitted(1), 11: omitted(1), 23: omitted(1)},
        "cell_to_input_weights cannot be given without cell_to_forget_weights",
    ),
    (Op.LSTM, {13: omitted(1)}, "forget_gate_bias has no value"),
    (Op.LSTM, {20: int32(5)}, "activation is 5"),
    (Op.LSTM, {21: float32(-1)}, "cell_clip is -1; it must be >= 0"),
    (Op.LSTM, {22: float32(float("nan"))}, "proj_clip is nan; it must be >= 0"),
    *((Op.LSTM, {i: ONES if i in {9, 10, 11, 12, 13, 14, 15, 17} or i > 22 else SQUARE}, r"has shape \[9")
      for i in (1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 23, 24, 25, 26)),
    (Op.UNIDIRECTIONAL_SEQUENCE_LSTM, {0: SQUARE}, "input has rank 2; it must be 3"),
    (Op.UNIDIRECTIONAL_SEQUENCE_LSTM, {23: boolean(False)}, r"output_state_in has shape \[2, 5\]; it must be \[3, 5\]"),
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {39: omitted(3)}, "cannot be given without aux_input"),
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {47: omitted(2)}, "cannot be given without bw_aux_input_to_output_weights"),
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {45: SQUARE}, "bw_aux_input_to_forget_weights has shape"),
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {39: float_value(np.ones((2, 2, 3)))}, "aux_input has 2 time steps and 2 batches"),
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {51: boolean(True)}, "with merge_outputs true it has 1 or 5"),
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {38: SQUARE}, "bw_cell_state_in has shape"),
    (
        Op.BIDIRECTIONAL_SEQUENCE_LSTM,
        {1: omitted(2), 5: omitted(2), 9: omitted(1), 12: omitted(1), 53: omitted(1)},
        "fw_aux_input_to_input_weights cannot be given without an input gate",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "changes", "message"), CONSTRAINTS)
def test_broken_constraint_fails_the_run(type_: Op, changes: dict[int, Value], message: str) -> None:
    arguments, outputs = valid(type_), floats(*[()] * OUTPUTS[type_])
    run(type_, arguments, outputs)
    with pytest.raises(HalError, match=message):
        run(type_, [changes.get(i, value) for i, value in enumerate(arguments)], outputs)
