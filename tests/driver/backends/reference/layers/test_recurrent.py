"""RNN, SVDF and the sequence RNNs on CpuRef: cases computed by hand, and comparison with LiteRT."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import Input, State, litert, schema
from tests.driver.one_operation import Value, boolean, int32, run, tensor
from tests.driver.recurrent_arguments import (
    as_half,
    float_value,
    floats,
    for_litert,
    generators,
    omitted,
    random_floats,
    sizes,
)

NONE, RELU, RELU1, RELU6, TANH, SIGMOID = (0, 1, 2, 3, 4, 6)
TFLITE_ACTIVATIONS = {NONE: 0, RELU: 1, RELU6: 3, TANH: 4}


# One cell, computed by hand: W x + R h + b = [1*2 + 0.5*4 + 1, -1*2 + 0.5*6 - 3] = [5, -2]
CELL = [float_value([[1], [-1]]), float_value([[0.5, 0], [0, 0.5]]), float_value([1, -3])]
INPUT, HIDDEN = float_value([[2]]), float_value([[4, 6]])


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (NONE, [5, -2]),
        (RELU, [5, 0]),
        (RELU1, [1, -1]),
        (RELU6, [5, 0]),
        (TANH, np.tanh([5, -2])),
        (SIGMOID, [1 / (1 + np.exp(-5)), 1 / (1 + np.exp(2))]),
    ],
)
def test_rnn_by_hand(activation: int, expected: Sequence[float]) -> None:
    state, out = run(Op.RNN, [INPUT, *CELL, HIDDEN, int32(activation)], floats((1, 2), (1, 2)))
    np.testing.assert_allclose(out, [expected], rtol=1e-6)
    np.testing.assert_array_equal(state, out)


def test_svdf_by_hand() -> None:
    # Two filters of memory 3, rank 2. The state's last column is ignored: A = [1*3, 2*3] takes its place.
    state = float_value([[1, 2, 99, 3, 4, 99]])
    arguments = [
        float_value([[3]]),
        float_value([[1], [2]]),
        float_value([[1, 10, 100], [1, 1, 1]]),
        float_value([0.5]),
        state,
    ]
    state_out, out = run(Op.SVDF, [*arguments, int32(2), int32(NONE)], floats((1, 6), (1, 1)))
    # 1*1 + 10*2 + 100*3 = 321; 3 + 4 + 6 = 13
    assert out.item() == 321 + 13 + 0.5
    np.testing.assert_array_equal(state_out, [[2, 3, 0, 4, 6, 0]])


def test_svdf_without_bias_keeps_its_input() -> None:
    state = float_value([[1, 2]])
    arguments = [
        float_value([[3]]),
        float_value([[1]]),
        float_value([[1, 1]]),
        omitted(1),
        state,
        int32(1),
        int32(RELU1),
    ]
    state_out, out = run(Op.SVDF, arguments, floats((1, 2), (1, 1)))
    assert out.item() == 1
    np.testing.assert_array_equal(state_out, [[3, 0]])
    np.testing.assert_array_equal(np.asarray(state[1]), [[1, 2]])


def test_sequence_is_the_cell_step_by_step() -> None:
    sequence = float_value([[[2]], [[0]]])  # time-major: two steps of one batch
    out, state = run(
        Op.UNIDIRECTIONAL_SEQUENCE_RNN,
        [sequence, *CELL, HIDDEN, int32(NONE), int32(1)],
        floats((2, 1, 2), (1, 2)),
    )
    # second step: [0.5*5 + 1, 0.5*-2 - 3]
    np.testing.assert_array_equal(out.reshape(2, 2), [[5, -2], [3.5, -4]])
    np.testing.assert_array_equal(state, [[3.5, -4]])


def bidirectional(rng: np.random.Generator, shape: tuple[int, int, int, int], aux: int) -> list[Value]:
    """Arguments of BIDIRECTIONAL_SEQUENCE_RNN up to the aux weights, time-major.

    Args:
        rng: where values come from.
        shape: time steps, batches, size, units.
        aux: size of aux_input.
    """
    steps, batches, size, units = shape

    def cell() -> list[Value]:
        return [
            random_floats(rng, units, size),
            random_floats(rng, units, units),
            random_floats(rng, units),
            random_floats(rng, batches, units),
        ]

    return [
        random_floats(rng, steps, batches, size),
        *cell(),
        *cell(),
        random_floats(rng, steps, batches, aux),
        random_floats(rng, units, aux),
        random_floats(rng, units, aux),
    ]


def run_bidirectional(values: Sequence[Value], outputs: Sequence[Operand], *, merge: bool = False) -> list[AnyArray]:
    rest = [int32(TANH), boolean(True), boolean(merge)]
    return run(Op.BIDIRECTIONAL_SEQUENCE_RNN, [*values, *rest], outputs)


def test_backward_is_forward_on_reversed_time() -> None:
    values = bidirectional(np.random.default_rng(1), (3, 2, 4, 5), 0)[:9]
    values[5:9] = values[1:5]  # the same cell in both directions
    unlinked = [omitted(3), omitted(2), omitted(2)]
    shapes = floats((3, 2, 5), (3, 2, 5), (2, 5), (2, 5))
    forward, backward, state, back_state = run_bidirectional([*values, *unlinked], shapes)
    turned = [float_value(np.asarray(values[0][1])[::-1]), *values[1:], *unlinked]
    other, other_back, *_ = run_bidirectional(turned, shapes)
    np.testing.assert_allclose(backward, other[::-1], rtol=1e-5)
    np.testing.assert_allclose(forward, other_back[::-1], rtol=1e-5)
    np.testing.assert_array_equal(state, forward[-1])
    np.testing.assert_array_equal(back_state, backward[0])


def test_cross_linking_is_a_longer_input() -> None:
    values = bidirectional(np.random.default_rng(2), (3, 2, 4, 5), 3)
    linked = run_bidirectional(values, floats((3, 2, 10), (2, 5), (2, 5)), merge=True)
    joined = list(values[:9])
    for at, aux in ((0, 9), (1, 10), (5, 11)):
        joined[at] = float_value(np.concatenate([np.asarray(values[at][1]), np.asarray(values[aux][1])], axis=-1))
    plain = run_bidirectional([*joined, omitted(3), omitted(2), omitted(2)], floats((3, 2, 5), (3, 2, 5)))
    np.testing.assert_allclose(linked[0], np.concatenate(plain, axis=2), rtol=1e-5, atol=1e-6)


def test_parallel_linking_gives_aux_to_the_backward_cell() -> None:
    rng = np.random.default_rng(3)
    values = bidirectional(rng, (3, 2, 4, 5), 3)
    values[5] = random_floats(rng, 5, 3)
    values[10:] = [omitted(2), omitted(2)]
    _, backward = run_bidirectional(values, floats((3, 2, 5), (3, 2, 5)))
    _, expected = run_bidirectional(
        [values[9], values[5], *values[2:9], omitted(3), omitted(2), omitted(2)], floats((3, 2, 5), (3, 2, 5))
    )
    np.testing.assert_allclose(backward, expected, rtol=1e-6)


def test_float16_agree_with_floats() -> None:
    values = bidirectional(np.random.default_rng(4), (3, 2, 4, 5), 3)
    rest = [int32(SIGMOID), boolean(False), boolean(True)]
    batch_major = [
        float_value(np.swapaxes(np.asarray(values[i][1]), 0, 1)) if i in (0, 9) else values[i] for i in range(12)
    ]
    full = run(Op.BIDIRECTIONAL_SEQUENCE_RNN, [*batch_major, *rest], floats((2, 3, 10)))[0]
    half = run(
        Op.BIDIRECTIONAL_SEQUENCE_RNN,
        [*as_half(batch_major), *rest],
        [tensor(T.TENSOR_FLOAT16, (2, 3, 10))],
    )[0]
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, full, atol=4e-3)


COMPLAINTS: list[tuple[Op, dict[int, Value], str]] = [
    (Op.RNN, {1: float_value(np.ones((2, 3)))}, r"weights has shape \[2, 3\]; it must be \[2, 1\]"),
    (Op.RNN, {2: float_value(np.ones((2, 3)))}, r"recurrent_weights has shape \[2, 3\]"),
    (Op.RNN, {3: float_value(np.ones(3))}, r"bias has shape \[3\]"),
    (Op.RNN, {4: float_value(np.ones((2, 2)))}, r"hidden_state_in has shape \[2, 2\]"),
    (Op.RNN, {0: float_value(np.ones(1))}, "input has rank 1; it must be 2"),
    (Op.RNN, {5: int32(5)}, "activation is 5; it must be one of 0, 1, 2, 3, 4, 6"),
    (Op.RNN, {3: omitted(1)}, "bias has no value"),
    (Op.UNIDIRECTIONAL_SEQUENCE_RNN, {6: int32(2)}, "time_major is 2; it must be 0 or 1"),
    (Op.UNIDIRECTIONAL_SEQUENCE_RNN, {0: float_value(np.ones((1, 1)))}, "input has rank 2; it must be 3"),
    (Op.UNIDIRECTIONAL_SEQUENCE_RNN, {0: float_value(np.ones((1, 2, 1)))}, "hidden_state has shape"),
    (Op.SVDF, {5: int32(0)}, "rank is 0; it must divide the 2 filters"),
    (Op.SVDF, {5: int32(3)}, "rank is 3; it must divide the 2 filters"),
    (Op.SVDF, {1: float_value(np.ones((2, 2)))}, "weights_feature has 2 columns; it must have 1"),
    (Op.SVDF, {2: float_value(np.ones((1, 3)))}, r"weights_time has shape \[1, 3\]"),
    (Op.SVDF, {3: float_value(np.ones(2))}, r"bias has shape \[2\]; it must be \[1\]"),
    (Op.SVDF, {4: float_value(np.ones((1, 5)))}, r"state_in has shape \[1, 5\]; it must be \[1, 6\]"),
    (Op.SVDF, {6: int32(4)}, r"activation is 4; it must be in 0\.\.3"),
    (Op.BIDIRECTIONAL_SEQUENCE_RNN, {9: omitted(3)}, "cannot be given without aux_input"),
    (Op.BIDIRECTIONAL_SEQUENCE_RNN, {10: omitted(2)}, "bw_aux_weights cannot be given without fw_aux_weights"),
    (Op.BIDIRECTIONAL_SEQUENCE_RNN, {9: float_value(np.ones((2, 1, 1)))}, "aux_input has 2 time steps"),
    (Op.BIDIRECTIONAL_SEQUENCE_RNN, {11: float_value(np.ones((2, 3)))}, r"bw_aux_weights has shape \[2, 3\]"),
    (Op.BIDIRECTIONAL_SEQUENCE_RNN, {14: boolean(True)}, "has 2 outputs; with merge_outputs true it has 1 or 3"),
    (Op.BIDIRECTIONAL_SEQUENCE_RNN, {5: float_value(np.ones((2, 2)))}, "bw_weights has shape"),
]
AUX = [float_value([[[1]]]), float_value([[1], [1]]), float_value([[1], [1]])]
VALID: dict[Op, tuple[list[Value], list[Operand]]] = {
    Op.RNN: ([INPUT, *CELL, HIDDEN, int32(NONE)], floats((), ())),
    Op.UNIDIRECTIONAL_SEQUENCE_RNN: ([float_value([[[2]]]), *CELL, HIDDEN, int32(NONE), int32(1)], floats((), ())),
    Op.SVDF: (
        [
            float_value([[3]]),
            float_value([[1], [2]]),
            float_value(np.ones((2, 3))),
            float_value([0]),
            float_value(np.ones((1, 6))),
            int32(2),
            int32(NONE),
        ],
        floats((), ()),
    ),
    Op.BIDIRECTIONAL_SEQUENCE_RNN: (
        [float_value([[[2]]]), *CELL, HIDDEN, *CELL, HIDDEN, *AUX, int32(NONE), boolean(True), boolean(False)],
        floats((), ()),
    ),
}


@pytest.mark.parametrize(("type_", "changes", "message"), COMPLAINTS)
def test_broken_constraint_fails_the_run(type_: Op, changes: dict[int, Value], message: str) -> None:
    arguments, outputs = VALID[type_]
    run(type_, arguments, outputs)
    with pytest.raises(HalError, match=message):
        run(type_, [changes.get(i, value) for i, value in enumerate(arguments)], outputs)


sequences = st.tuples(sizes, sizes, sizes, sizes)
"""Time steps, batches, size, units."""


@settings(max_examples=20, deadline=None)
@given(generators, sequences, st.sampled_from(list(TFLITE_ACTIVATIONS)), st.booleans())
def test_sequence_agrees_with_litert(
    rng: np.random.Generator, sequence: tuple[int, int, int, int], activation: int, time_major: bool
) -> None:
    steps, batches, size, units = sequence
    shape = (steps, batches) if time_major else (batches, steps)
    values = [
        random_floats(rng, *shape, size),
        random_floats(rng, units, size),
        random_floats(rng, units, units),
        random_floats(rng, units),
        random_floats(rng, batches, units),
    ]
    outputs = floats((*shape, units), (batches, units))
    ours = run(Op.UNIDIRECTIONAL_SEQUENCE_RNN, [*values, int32(activation), int32(time_major)], outputs)
    options = schema().SequenceRNNOptionsT()
    options.timeMajor, options.fusedActivationFunction = time_major, TFLITE_ACTIVATIONS[activation]
    theirs = litert("UNIDIRECTIONAL_SEQUENCE_RNN", options, for_litert(values, [4]), outputs[:1])
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our, their, rtol=1e-5, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(generators, sequences, st.booleans(), st.booleans())
def test_bidirectional_agrees_with_litert(
    rng: np.random.Generator, sequence: tuple[int, int, int, int], linked: bool, merge: bool
) -> None:
    steps, batches, size, units = sequence
    values = bidirectional(rng, sequence, size)
    if not linked:
        values[9:] = [omitted(3), omitted(2), omitted(2)]
    shape = (steps, batches, units)
    outputs = floats((steps, batches, 2 * units)) if merge else floats(shape, shape)
    ours = run_bidirectional(values, outputs + floats((), ()), merge=merge)
    options = schema().BidirectionalSequenceRNNOptionsT()
    options.timeMajor, options.mergeOutputs, options.fusedActivationFunction = True, merge, TANH
    theirs = litert("BIDIRECTIONAL_SEQUENCE_RNN", options, for_litert(values, [4, 8]), outputs)
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our, their, rtol=1e-5, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(generators, sequences, st.integers(1, 3), st.booleans())
def test_svdf_agrees_with_litert(
    rng: np.random.Generator, shape: tuple[int, int, int, int], rank: int, biased: bool
) -> None:
    memory, batches, size, units = shape
    filters = units * rank
    values = [
        random_floats(rng, batches, size),
        random_floats(rng, filters, size),
        random_floats(rng, filters, memory),
        random_floats(rng, units) if biased else omitted(1),
        random_floats(rng, batches, memory * filters),
    ]
    outputs = floats((batches, memory * filters), (batches, units))
    ours = run(Op.SVDF, [*values, int32(rank), int32(RELU)], outputs)
    options = schema().SVDFOptionsT()
    options.rank, options.fusedActivationFunction = rank, TFLITE_ACTIVATIONS[RELU]
    # TFLite shifts its memory before the step, NNAPI after it
    state = np.asarray(values[4][1]).reshape(batches, filters, memory)
    moved = np.concatenate([np.zeros((batches, filters, 1), np.float32), state[:, :, :-1]], axis=2)
    given_state: Input = (values[4][0], State(moved.reshape(batches, -1)))
    theirs = litert("SVDF", options, [*for_litert(values[:4], []), given_state], outputs[1:])
    np.testing.assert_allclose(ours[1], theirs[0], rtol=1e-5, atol=1e-5)
