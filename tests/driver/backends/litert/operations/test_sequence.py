"""States of layers over sequences: CpuAcc takes and returns them where the engine's variables can hold them."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnhal.types import Operand, OperandLifeTime
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.support.comparison import assert_same_results
from tests.driver.backends.litert.support.random_graphs import Entry, Graph
from tests.driver.one_operation import tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

BATCHES, STEPS, INPUTS, UNITS = 2, 3, 4, 5
RNN, LSTM = Op.UNIDIRECTIONAL_SEQUENCE_RNN, Op.UNIDIRECTIONAL_SEQUENCE_LSTM
RANDOM = np.random.default_rng(3)


def floats(*shape: int) -> tuple[Operand, np.ndarray]:
    return tensor(T.TENSOR_FLOAT32, shape), RANDOM.standard_normal(shape) / 2


def state_input(graph: Graph) -> int:
    return graph.add_input(*floats(BATCHES, UNITS))


def add_layer(graph: Graph, type_: Op, states: Sequence[int]) -> list[int]:
    """Add a layer that returns its states. Return its outputs: the result, and each state."""
    x = graph.add_input(*floats(BATCHES, STEPS, INPUTS))

    def constants(*shapes: tuple[int, ...]) -> list[int]:
        return [graph.add_constant(*floats(*shape)) for shape in shapes]

    def scalars(*values: tuple[T, float]) -> list[int]:
        return [graph.add_constant(Operand(kind), value) for kind, value in values]

    if type_ == RNN:
        cell = constants((UNITS, INPUTS), (UNITS, UNITS), (UNITS,))
        inputs = [x, *cell, *states, *scalars((T.INT32, 4), (T.INT32, 0))]
    else:
        omitted = Entry(Operand(T.TENSOR_FLOAT32, (0,), lifetime=OperandLifeTime.NO_VALUE), None)
        none = [graph.add(omitted) for _ in range(9)]
        cell = constants(*[(UNITS, INPUTS)] * 4, *[(UNITS, UNITS)] * 4)
        gates = constants(*[(UNITS,)] * 4)
        numbers = scalars((T.INT32, 4), (T.FLOAT32, 0), (T.FLOAT32, 0), (T.BOOL, 0))
        inputs = [x, *cell, *none[:3], *gates, *none[3:5], *states, *numbers, *none[5:]]
    outputs = graph.apply(type_, inputs, [tensor(T.TENSOR_FLOAT32)] * (1 + len(states)))
    assert outputs is not None
    return outputs


@pytest.mark.parametrize(("type_", "count"), [(RNN, 1), (LSTM, 2)])
def test_states_are_inputs_and_outputs(type_: Op, count: int) -> None:
    graph = Graph()
    outputs = add_layer(graph, type_, [state_input(graph) for _ in range(count)])
    assert assert_same_results(graph.sample(outputs)) == {type_: 1}
    assert assert_same_results(graph.sample(outputs[:1])) == {type_: 1}


def test_zeros_are_kept_apart_from_states_that_are_given() -> None:
    graph = Graph()
    zeros = graph.add_constant(tensor(T.TENSOR_FLOAT32, (BATCHES, UNITS)), np.zeros((BATCHES, UNITS)))
    outputs = [*add_layer(graph, RNN, [zeros]), *add_layer(graph, RNN, [state_input(graph)])]
    assert assert_same_results(graph.sample(outputs)) == {RNN: 2}


def test_state_of_two_layers_is_left_to_the_reference() -> None:
    graph = Graph()
    state = state_input(graph)
    outputs = [*add_layer(graph, RNN, [state]), *add_layer(graph, RNN, [state])]
    assert assert_same_results(graph.sample(outputs))[RNN] < 2


def test_state_that_an_operation_computes() -> None:
    graph = Graph()
    (state,) = graph.apply(Op.ABS, [state_input(graph)], [tensor(T.TENSOR_FLOAT32)]) or [-1]
    outputs = add_layer(graph, RNN, [state])
    assert_same_results(graph.sample([*outputs, state]))


def test_state_that_an_operation_reads() -> None:
    graph = Graph()
    result, state = add_layer(graph, RNN, [state_input(graph)])
    (size,) = graph.apply(Op.ABS, [state], [tensor(T.TENSOR_FLOAT32)]) or [-1]
    assert_same_results(graph.sample([result, size]))
    assert_same_results(graph.sample([result, state, size]))


def test_layers_that_pass_their_state_on() -> None:
    graph = Graph()
    first, state = add_layer(graph, RNN, [state_input(graph)])
    second, last = add_layer(graph, RNN, [state])
    assert_same_results(graph.sample([first, second, last]))
