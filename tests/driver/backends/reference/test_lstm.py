"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM on CpuRef: by hand, and against LiteRT."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, tanh

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import Value, boolean, float32, int32, run, tensor
from tests.driver.recurrent_arguments import as_half, drawn, floats, for_litert, generators, omitted, real, sizes
from tests.litert import litert, schema

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
    """h and C of one step of the cell above, with some arguments changed."""
    arguments = [omitted(1)] * 27
    for i, value in WEIGHTS.items():
        arguments[i] = real([[value]])
    for i, value in BIASES.items():
        arguments[i] = real([value])
    arguments[16] = omitted(2)
    arguments[0], arguments[18], arguments[19] = real([[1]]), real([[2]]), real([[STATE]])
    arguments[20:23] = [int32(activation), float32(clips[0]), float32(clips[1])]
    for i, argument in changes.items():
        arguments[i] = argument
    scratch, hidden, state, output = run(Op.LSTM, arguments, floats((), (1, 1), (1, 1), (1, 1)))
    assert scratch.shape == (1, 3 if arguments[1][1] is None else 4)
    np.testing.assert_array_equal(hidden, output)
    return hidden.item(), state.item()


def expected(i: float, f: float, c: float, o: float) -> tuple[float, float]:
    """h and C from the gates before their activation."""
    state = sigmoid(f) * STATE + sigmoid(i) * tanh(c)
    return sigmoid(o) * tanh(state), state


CIFG = {1: omitted(2), 5: omitted(2), 12: omitted(1)}


def test_cell_by_hand() -> None:
    assert by_hand({}) == pytest.approx(expected(0.6, -0.3, 0.9, 0.1), rel=1e-6)


def test_without_input_gate_it_is_one_minus_forget() -> None:
    # 1 - sigmoid(x) = sigmoid(-x)
    assert by_hand(CIFG) == pytest.approx(expected(0.3, -0.3, 0.9, 0.1), rel=1e-6)


def test_peepholes_see_the_old_state_and_the_output_gate_the_new_one() -> None:
    hidden, state = by_hand({9: real([1]), 10: real([2]), 11: real([3])})
    _, new = expected(0.6 + STATE, -0.3 + 2 * STATE, 0.9, 0)
    assert state == pytest.approx(new, rel=1e-6)
    assert hidden == pytest.approx(sigmoid(0.1 + 3 * new) * tanh(new), rel=1e-6)


def test_projection_with_bias_and_clips() -> None:
    # the cell state would be 0.67
    hidden, state = by_hand({16: real([[2]]), 17: real([0.25])}, clips=(0.4, 0.6))
    assert state == pytest.approx(0.4)
    assert sigmoid(0.1) * tanh(0.4) * 2 + 0.25 > 0.6
    assert hidden == pytest.approx(0.6)
    unclipped, _ = by_hand({16: real([[2]])})
    assert unclipped == pytest.approx(expected(0.6, -0.3, 0.9, 0.1)[0] * 2, rel=1e-6)


def test_proj_clip_needs_a_projection() -> None:
    assert by_hand({}, clips=(0, 0.01))[0] == pytest.approx(expected(0.6, -0.3, 0.9, 0.1)[0], rel=1e-6)


@pytest.mark.parametrize(("activation", "g"), [(NONE, 0.9), (RELU, 0.9), (RELU6, 0.9), (SIGMOID, sigmoid(0.9))])
def test_activation_is_of_cell_input_and_of_cell_state(activation: int, g: float) -> None:
    state = sigmoid(-0.3) * STATE + sigmoid(0.6) * g
    out = sigmoid(state) if activation == SIGMOID else state
    assert by_hand({}, activation) == pytest.approx((sigmoid(0.1) * out, state), rel=1e-6)


def test_layer_normalisation_by_hand() -> None:
    # Two units without recurrence: before normalisation each gate is (3, 1), after it (1, -1), so only the norm weights
    # and the biases count; the bias is added after the normalisation, or its (9, 0) would turn the signs around.
    arguments: list[Value] = [real([[1]]), *[real([[3], [1]])] * 4, *[real(np.zeros((2, 2)))] * 4, *[omitted(1)] * 3]
    arguments += [real([0, 9])] * 4 + [omitted(2), omitted(1), real([[0, 0]]), real([[1, 1]])]
    arguments += [int32(NONE), float32(0), float32(0)]
    arguments += [real([1, 1]), real([2, 2]), real([3, 3]), real([4, 4])]
    _, hidden, state, _ = run(Op.LSTM, arguments, floats((), (1, 2), (1, 2), (1, 2)))
    first = sigmoid(2) * 1 + sigmoid(1) * 3
    second = sigmoid(-2 + 9) * 1 + sigmoid(-1 + 9) * (-3 + 9)
    np.testing.assert_allclose(state, [[first, second]], rtol=1e-5)
    np.testing.assert_allclose(hidden, [[sigmoid(4) * first, sigmoid(-4 + 9) * second]], rtol=1e-5)


# ---- Cells drawn at random ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """What a cell has."""

    input_gate: bool = True
    peephole: bool = True
    norm: bool = True
    projection: bool = True
    projection_bias: bool = True


Sizes = tuple[int, int, int, int]
"""Batches, size of the input, units, output size."""

parts = st.builds(Parts, st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())


def cell(rng: np.random.Generator, parts_: Parts, size: Sizes) -> list[Value]:
    """Arguments 1 to 17 of an LSTM."""
    _, inputs, units, output = size
    gate, bias = parts_.input_gate, parts_.projection and parts_.projection_bias

    def one(given_: bool, *shape: int) -> Value:
        return drawn(rng, *shape) if given_ else omitted(len(shape))

    return [
        *(one(gate or i > 0, units, inputs) for i in range(4)),
        *(one(gate or i > 0, units, output) for i in range(4)),
        *(one(parts_.peephole and (gate or i > 0), units) for i in range(3)),
        *(one(gate or i > 0, units) for i in range(4)),
        one(parts_.projection, output, units),
        one(bias, output),
    ]


def norms(rng: np.random.Generator, parts_: Parts, units: int) -> list[Value]:
    """The four layer normalisation weights."""
    wanted = [parts_.norm and (parts_.input_gate or i > 0) for i in range(4)]
    return [drawn(rng, units) if each else omitted(1) for each in wanted]


def states(rng: np.random.Generator, size: Sizes) -> list[Value]:
    batches, _, units, output = size
    return [drawn(rng, batches, output), drawn(rng, batches, units)]


def scalars(activation: int = TANH, cell_clip: float = 0, proj_clip: float = 0) -> list[Value]:
    return [int32(activation), float32(cell_clip), float32(proj_clip)]


def fitted(size: Sizes, parts_: Parts) -> Sizes:
    """Without projection the output is as large as the cell."""
    return size if parts_.projection else (*size[:3], size[2])


def test_sequence_is_the_cell_step_by_step() -> None:
    rng, size = np.random.default_rng(0), (2, 3, 4, 5)
    weights, norm, start = cell(rng, Parts(), size), norms(rng, Parts(), 4), states(rng, size)
    sequence = drawn(rng, 2, 3, 3)  # batch-major: three steps of two batches
    arguments = [sequence, *weights, *start, *scalars(TANH, 0.8, 0.7), boolean(False), *norm]
    out, hidden, state = run(Op.UNIDIRECTIONAL_SEQUENCE_LSTM, arguments, floats((2, 3, 5), (2, 5), (2, 4)))
    for step in range(3):
        one = real(np.asarray(sequence[1])[:, step])
        arguments = [one, *weights, *start, *scalars(TANH, 0.8, 0.7), *norm]
        made = run(Op.LSTM, arguments, floats((), (2, 5), (2, 4), (2, 5)))
        np.testing.assert_allclose(out[:, step], made[3], rtol=1e-5, atol=1e-6)
        start = [real(made[1]), real(made[2])]
    np.testing.assert_allclose(hidden, made[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, made[2], rtol=1e-5, atol=1e-6)


def test_a_step_does_not_write_to_its_inputs() -> None:
    rng, size = np.random.default_rng(5), (1, 2, 3, 3)
    start = states(rng, size)
    before = [np.array(value) for _, value in start]
    arguments = [drawn(rng, 1, 2), *cell(rng, Parts(), size), *start, *scalars()]
    run(Op.LSTM, arguments, floats((), (1, 3), (1, 3), (1, 3)))
    for (_, value), old in zip(start, before, strict=True):
        np.testing.assert_array_equal(np.asarray(value), old)


def bidirectional(
    rng: np.random.Generator, parts_: Parts, sequence: tuple[int, Sizes], aux: str = "none"
) -> list[Value]:
    """Arguments 0 to 47 of BIDIRECTIONAL_SEQUENCE_LSTM, time-major.

    Args:
        rng: where values come from.
        parts_: of both cells.
        sequence: time steps, and sizes.
        aux: "none", or "cross" with an aux input as large as the input.
    """
    steps, size = sequence
    batches, inputs, units, _ = size
    arguments = [drawn(rng, steps, batches, inputs), *cell(rng, parts_, size), *cell(rng, parts_, size)]
    arguments += [*states(rng, size), *states(rng, size)]
    if aux == "none":
        return [*arguments, omitted(3), *[omitted(2)] * 8]
    weights = [[drawn(rng, units, inputs) for _ in range(4)] for _ in range(2)]
    if not parts_.input_gate:
        weights = [[omitted(2), *each[1:]] for each in weights]
    return [*arguments, drawn(rng, steps, batches, inputs), *weights[0], *weights[1]]


def run_bidirectional(
    values: Sequence[Value], outputs: Sequence[Operand], *, merge: bool = False, norm: Sequence[Value] = ()
) -> list[AnyArray]:
    flags = [boolean(merge), boolean(True)]
    return run(Op.BIDIRECTIONAL_SEQUENCE_LSTM, [*values, *scalars(), *flags, *(norm or [omitted(1)] * 8)], outputs)


def test_backward_is_forward_on_reversed_time() -> None:
    rng, size = np.random.default_rng(1), (2, 3, 4, 5)
    values = bidirectional(rng, Parts(), (3, size))
    values[18:35], values[37:39] = values[1:18], values[35:37]  # the same cell both ways
    norm = norms(rng, Parts(), 4) * 2
    shapes = floats((3, 2, 5), (3, 2, 5), (2, 5), (2, 4), (2, 5), (2, 4))
    forward, backward, hidden, _, back_hidden, back_state = run_bidirectional(values, shapes, norm=norm)
    turned = [real(np.asarray(values[0][1])[::-1]), *values[1:]]
    other, other_back, _, state, *_ = run_bidirectional(turned, shapes, norm=norm)
    np.testing.assert_allclose(backward, other[::-1], rtol=1e-5)
    np.testing.assert_allclose(forward, other_back[::-1], rtol=1e-5)
    np.testing.assert_array_equal(hidden, forward[-1])
    np.testing.assert_array_equal(back_hidden, backward[0])
    np.testing.assert_allclose(back_state, state, rtol=1e-5)


def test_parallel_linking_gives_aux_to_the_backward_cell() -> None:
    rng, size = np.random.default_rng(2), (2, 3, 4, 5)
    values = bidirectional(rng, Parts(), (3, size))
    aux = drawn(rng, 3, 2, 6)
    values[18:22] = [drawn(rng, 4, 6) for _ in range(4)]  # the backward cell reads 6 values at each step
    values[39] = aux
    merged = run_bidirectional(values, floats((3, 2, 10)), merge=True)[0]
    swapped = [aux, *values[18:35], *values[18:35], *values[37:39], *values[37:39], omitted(3), *[omitted(2)] * 8]
    _, backward = run_bidirectional(swapped, floats((3, 2, 5), (3, 2, 5)))
    np.testing.assert_allclose(merged[:, :, 5:], backward, rtol=1e-5)


def test_directions_may_have_different_sizes_and_parts() -> None:
    rng = np.random.default_rng(3)
    forward = bidirectional(rng, Parts(), (3, (2, 3, 4, 5)))
    backward = bidirectional(rng, Parts(input_gate=False, peephole=False, projection=False), (3, (2, 3, 2, 2)))
    mixed = [*forward[:18], *backward[18:35], *forward[35:37], *backward[37:]]
    out, back = run_bidirectional(mixed, floats((3, 2, 5), (3, 2, 2)))
    np.testing.assert_allclose(out, run_bidirectional(forward, floats((3, 2, 5), (3, 2, 5)))[0], rtol=1e-5)
    expected_back = run_bidirectional([forward[0], *backward[1:]], floats((3, 2, 2), (3, 2, 2)))[1]
    np.testing.assert_allclose(back, expected_back, rtol=1e-5)


def test_half_floats_agree_with_floats() -> None:
    rng = np.random.default_rng(4)
    values = [*bidirectional(rng, Parts(), (3, (2, 3, 4, 5)), "cross"), *scalars(TANH, 0.9, 0.9)]
    values += [boolean(True), boolean(True), *norms(rng, Parts(), 4), *norms(rng, Parts(), 4)]
    full = run(Op.BIDIRECTIONAL_SEQUENCE_LSTM, values, floats((3, 2, 10)))[0]
    half = run(Op.BIDIRECTIONAL_SEQUENCE_LSTM, as_half(values), [tensor(T.TENSOR_FLOAT16, (3, 2, 10))])[0]
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, full, atol=4e-3)


# ---- Broken constraints ---------------------------------------------------------------------------------


def valid(type_: Op) -> list[Value]:
    """Arguments that have all parts: 2 batches, 3 inputs, 4 units, 5 outputs."""
    rng, size = np.random.default_rng(0), (2, 3, 4, 5)
    if type_ == Op.BIDIRECTIONAL_SEQUENCE_LSTM:
        values = [*bidirectional(rng, Parts(), (3, size), "cross"), *scalars(), boolean(False), boolean(True)]
        return [*values, *norms(rng, Parts(), 4), *norms(rng, Parts(), 4)]
    shape, flag = ((2, 3), []) if type_ == Op.LSTM else ((3, 2, 3), [boolean(True)])
    weights = [drawn(rng, *shape), *cell(rng, Parts(), size), *states(rng, size)]
    return [*weights, *scalars(), *flag, *norms(rng, Parts(), 4)]


OUTPUTS = {Op.LSTM: 4, Op.UNIDIRECTIONAL_SEQUENCE_LSTM: 1, Op.BIDIRECTIONAL_SEQUENCE_LSTM: 2}
ONES, SQUARE = real(np.ones(9)), real(np.ones((9, 9)))
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
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {39: real(np.ones((2, 2, 3)))}, "aux_input has 2 time steps and 2 batches"),
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {51: boolean(True)}, "with merge_outputs true it has 1 or 5"),
    (Op.BIDIRECTIONAL_SEQUENCE_LSTM, {38: SQUARE}, "bw_cell_state_in has shape"),
    (
        Op.BIDIRECTIONAL_SEQUENCE_LSTM,
        {1: omitted(2), 5: omitted(2), 9: omitted(1), 12: omitted(1), 53: omitted(1)},
        "fw_aux_input_to_input_weights cannot be given without an input gate",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "changes", "complaint"), CONSTRAINTS)
def test_broken_constraint_fails_the_run(type_: Op, changes: dict[int, Value], complaint: str) -> None:
    arguments, outputs = valid(type_), floats(*[()] * OUTPUTS[type_])
    run(type_, arguments, outputs)
    with pytest.raises(HalError, match=complaint):
        run(type_, [changes.get(i, value) for i, value in enumerate(arguments)], outputs)


# ---- Against LiteRT -------------------------------------------------------------------------------------

cells = st.tuples(sizes, sizes, sizes, sizes)
clips = st.sampled_from([0.0, 0.25])
activations = st.sampled_from([TANH, RELU, RELU6])


@settings(max_examples=25, deadline=None)
@given(st.data(), generators, parts, cells)
def test_sequence_agrees_with_litert(data: st.DataObject, rng: np.random.Generator, parts_: Parts, size: Sizes) -> None:
    size = fitted(size, parts_)
    activation, cell_clip, proj_clip = data.draw(activations), data.draw(clips), data.draw(clips)
    time_major = data.draw(st.booleans())
    shape = (3, size[0]) if time_major else (size[0], 3)
    weights = [drawn(rng, *shape, size[1]), *cell(rng, parts_, size), *states(rng, size)]
    norm, outputs = norms(rng, parts_, size[2]), floats((*shape, size[3]), (), ())
    rest = scalars(activation, cell_clip, proj_clip)
    ours = run(Op.UNIDIRECTIONAL_SEQUENCE_LSTM, [*weights, *rest, boolean(time_major), *norm], outputs)
    options = schema().UnidirectionalSequenceLSTMOptionsT()
    options.timeMajor, options.fusedActivationFunction = time_major, activation
    options.cellClip, options.projClip = cell_clip, proj_clip
    theirs = litert("UNIDIRECTIONAL_SEQUENCE_LSTM", options, for_litert([*weights, *norm], [18, 19]), outputs[:1])
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our, their, rtol=1e-5, atol=2e-5)


@settings(max_examples=20, deadline=None)
@given(generators, parts, cells, st.booleans(), st.sampled_from(["none", "cross"]))
def test_bidirectional_agrees_with_litert(
    rng: np.random.Generator, parts_: Parts, size: Sizes, merge: bool, aux: str
) -> None:
    size = fitted(size, parts_)
    values = bidirectional(rng, parts_, (3, size), aux)
    shape = (3, size[0], size[3])
    outputs = floats((*shape[:2], 2 * shape[2])) if merge else floats(shape, shape)
    ours = run_bidirectional(values, outputs + floats((), (), (), ()), merge=merge)
    options = schema().BidirectionalSequenceLSTMOptionsT()
    options.timeMajor, options.mergeOutputs, options.fusedActivationFunction = True, merge, TANH
    options.cellClip = options.projClip = 0.0
    theirs = litert("BIDIRECTIONAL_SEQUENCE_LSTM", options, for_litert(values, [35, 36, 37, 38]), outputs)
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our, their, rtol=1e-5, atol=2e-5)
