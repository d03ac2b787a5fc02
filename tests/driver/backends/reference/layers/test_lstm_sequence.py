"""UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM on CpuRef: comparison with each other and LiteRT."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.lstm_arguments import (
    Parts,
    Sizes,
    bidirectional,
    cell,
    consistent_sizes,
    norm_weights,
    parts,
    scalars,
    states,
)
from tests.driver.one_operation import Value, boolean, run, tensor
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

RELU, RELU6, TANH = 1, 3, 4


def test_sequence_is_the_cell_step_by_step() -> None:
    rng, size = np.random.default_rng(0), (2, 3, 4, 5)
    weights, norm, start = cell(rng, Parts(), size), norm_weights(rng, Parts(), 4), states(rng, size)
    sequence = random_floats(rng, 2, 3, 3)  # batch-major: three steps of two batches
    arguments = [sequence, *weights, *start, *scalars(TANH, 0.8, 0.7), boolean(False), *norm]
    out, hidden, state = run(Op.UNIDIRECTIONAL_SEQUENCE_LSTM, arguments, floats((2, 3, 5), (2, 5), (2, 4)))
    for step in range(3):
        step_input = float_value(np.asarray(sequence[1])[:, step])
        arguments = [step_input, *weights, *start, *scalars(TANH, 0.8, 0.7), *norm]
        actual = run(Op.LSTM, arguments, floats((), (2, 5), (2, 4), (2, 5)))
        np.testing.assert_allclose(out[:, step], actual[3], rtol=1e-5, atol=1e-6)
        start = [float_value(actual[1]), float_value(actual[2])]
    np.testing.assert_allclose(hidden, actual[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, actual[2], rtol=1e-5, atol=1e-6)


def test_step_does_not_write_to_its_inputs() -> None:
    rng, size = np.random.default_rng(5), (1, 2, 3, 3)
    start = states(rng, size)
    before = [np.array(value) for _, value in start]
    arguments = [random_floats(rng, 1, 2), *cell(rng, Parts(), size), *start, *scalars()]
    run(Op.LSTM, arguments, floats((), (1, 3), (1, 3), (1, 3)))
    for (_, value), old in zip(start, before, strict=True):
        np.testing.assert_array_equal(np.asarray(value), old)


def run_bidirectional(
    values: Sequence[Value], outputs: Sequence[Operand], *, merge: bool = False, norm: Sequence[Value] = ()
) -> list[AnyArray]:
    flags = [boolean(merge), boolean(True)]
    return run(Op.BIDIRECTIONAL_SEQUENCE_LSTM, [*values, *scalars(), *flags, *(norm or [omitted(1)] * 8)], outputs)


def test_backward_is_forward_on_reversed_time() -> None:
    rng, size = np.random.default_rng(1), (2, 3, 4, 5)
    values = bidirectional(rng, Parts(), (3, size))
    values[18:35], values[37:39] = values[1:18], values[35:37]  # the same cell both ways
    norm = norm_weights(rng, Parts(), 4) * 2
    shapes = floats((3, 2, 5), (3, 2, 5), (2, 5), (2, 4), (2, 5), (2, 4))
    forward, backward, hidden, _, back_hidden, back_state = run_bidirectional(values, shapes, norm=norm)
    turned = [float_value(np.asarray(values[0][1])[::-1]), *values[1:]]
    other, other_back, _, state, *_ = run_bidirectional(turned, shapes, norm=norm)
    np.testing.assert_allclose(backward, other[::-1], rtol=1e-5)
    np.testing.assert_allclose(forward, other_back[::-1], rtol=1e-5)
    np.testing.assert_array_equal(hidden, forward[-1])
    np.testing.assert_array_equal(back_hidden, backward[0])
    np.testing.assert_allclose(back_state, state, rtol=1e-5)


def test_parallel_linking_gives_aux_to_the_backward_cell() -> None:
    rng, size = np.random.default_rng(2), (2, 3, 4, 5)
    values = bidirectional(rng, Parts(), (3, size))
    aux = random_floats(rng, 3, 2, 6)
    values[18:22] = [random_floats(rng, 4, 6) for _ in range(4)]  # the backward cell reads 6 values at each step
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


def test_float16_agree_with_floats() -> None:
    rng = np.random.default_rng(4)
    values = [*bidirectional(rng, Parts(), (3, (2, 3, 4, 5)), "cross"), *scalars(TANH, 0.9, 0.9)]
    values += [boolean(True), boolean(True), *norm_weights(rng, Parts(), 4), *norm_weights(rng, Parts(), 4)]
    full = run(Op.BIDIRECTIONAL_SEQUENCE_LSTM, values, floats((3, 2, 10)))[0]
    half = run(Op.BIDIRECTIONAL_SEQUENCE_LSTM, as_half(values), [tensor(T.TENSOR_FLOAT16, (3, 2, 10))])[0]
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, full, atol=4e-3)


# ---- Against LiteRT -------------------------------------------------------------------------------------

cells = st.tuples(sizes, sizes, sizes, sizes)
clips = st.sampled_from([0.0, 0.25])
activations = st.sampled_from([TANH, RELU, RELU6])


@settings(max_examples=25, deadline=None)
@given(st.data(), generators, parts, cells)
def test_sequence_agrees_with_litert(data: st.DataObject, rng: np.random.Generator, parts_: Parts, size: Sizes) -> None:
    size = consistent_sizes(size, parts_)
    activation, cell_clip, proj_clip = data.draw(activations), data.draw(clips), data.draw(clips)
    time_major = data.draw(st.booleans())
    shape = (3, size[0]) if time_major else (size[0], 3)
    weights = [random_floats(rng, *shape, size[1]), *cell(rng, parts_, size), *states(rng, size)]
    norm, outputs = norm_weights(rng, parts_, size[2]), floats((*shape, size[3]), (), ())
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
    size = consistent_sizes(size, parts_)
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
