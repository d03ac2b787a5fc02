"""Vectors of IF and WHILE."""

import numpy as np

from tools.conformance.builtin import builtin
from tools.conformance.builtin.writer import Graph, case
from tools.conformance.vectors import Case

F32, I32, BOOL8 = "TENSOR_FLOAT32", "TENSOR_INT32", "TENSOR_BOOL8"


def _branch(operation: str, shape: tuple[int, ...]) -> Graph:
    """x + 10 or x - 10."""
    graph = Graph()
    inputs = [graph.input(F32, shape), graph.constant(F32, [10.0]), graph.int32(0)]
    graph.apply(operation, inputs, [graph.output(F32, shape)])
    return graph


def _if(name: str, condition: bool, shape: tuple[int, ...]) -> Case:
    x = np.array([[1.0, 2], [3, 4]])
    graph = Graph()
    choice, then, otherwise = graph.input(BOOL8, (1,)), graph.subgraph(0), graph.subgraph(1)
    graph.apply("IF", [choice, then, otherwise, graph.input(F32, (2, 2))], [graph.output(F32, (2, 2))])
    branches = [_branch("ADD", shape), _branch("SUB", shape)]
    return case(name, graph, [[condition], x], [x + 10 if condition else x - 10], referenced=branches)


@builtin
def if_true() -> Case:
    """The first branch."""
    return _if("if_true", True, (2, 2))


@builtin
def if_false_of_unknown_shape() -> Case:
    """The second branch; inside, shapes are unknown."""
    return _if("if_false_of_unknown_shape", False, (0, 0))


def _count(limit: int) -> Graph:
    """The condition i < limit."""
    graph = Graph()
    i = graph.input(I32, (1,))
    graph.input(F32, (2,))
    graph.apply("LESS", [i, graph.constant(I32, [limit])], [graph.output(BOOL8, (1,))])
    return graph


def _double(step: int) -> Graph:
    """The body: i += step, x *= 2."""
    graph = Graph()
    i, x = graph.input(I32, (1,)), graph.input(F32, (2,))
    none = graph.int32(0)
    graph.apply("ADD", [i, graph.constant(I32, [step]), none], [graph.output(I32, (1,))])
    graph.apply("MUL", [x, graph.constant(F32, [2.0]), none], [graph.output(F32, (2,))])
    return graph


def _while(name: str, turns: int, step: int, *, expect_failure: bool = False) -> Case:
    graph = Graph()
    condition, body = graph.subgraph(0), graph.subgraph(1)
    inputs = [condition, body, graph.input(I32, (1,)), graph.input(F32, (2,))]
    graph.apply("WHILE", inputs, [graph.output(I32, (1,)), graph.output(F32, (2,))])
    x = np.array([1.5, -3])
    outputs = [[turns], x * 2**turns]
    return case(
        name, graph, [[0], x], outputs, referenced=[_count(turns), _double(step)], expect_failure=expect_failure
    )


@builtin
def while_5_turns() -> Case:
    """A counter and a value that doubles."""
    return _while("while_5_turns", 5, 1)


@builtin
def while_without_end() -> Case:
    """The counter never rises: only the loop timeout ends it."""
    return _while("while_without_end", 5, 0, expect_failure=True)
