"""Vectors of IF and WHILE."""

import numpy as np

from nnhal_tools.conformance.vectors.builtin import register
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.case import Case

F32, I32, BOOL8 = "TENSOR_FLOAT32", "TENSOR_INT32", "TENSOR_BOOL8"


def _branch(operation: str, shape: tuple[int, ...]) -> CaseGraph:
    """Return a branch that computes x + 10 or x - 10."""
    graph = CaseGraph()
    inputs = [graph.input(F32, shape), graph.constant(F32, [10.0]), graph.int32(0)]
    graph.apply(operation, inputs, [graph.output(F32, shape)])
    return graph


def _if(name: str, condition: bool, shape: tuple[int, ...]) -> Case:
    x = np.array([[1.0, 2], [3, 4]])
    graph = CaseGraph()
    choice, then, otherwise = graph.input(BOOL8, (1,)), graph.subgraph(0), graph.subgraph(1)
    graph.apply("IF", [choice, then, otherwise, graph.input(F32, (2, 2))], [graph.output(F32, (2, 2))])
    branches = [_branch("ADD", shape), _branch("SUB", shape)]
    return make_case(name, graph, [[condition], x], [x + 10 if condition else x - 10], referenced=branches)


@register
def if_true() -> Case:
    """Return an IF that takes the first branch."""
    return _if("if_true", True, (2, 2))


@register
def if_false_of_unknown_shape() -> Case:
    """Return an IF that takes the second branch. Shapes are unknown inside the branches."""
    return _if("if_false_of_unknown_shape", False, (0, 0))


def _condition(limit: int) -> CaseGraph:
    """Return the condition i < limit."""
    graph = CaseGraph()
    i = graph.input(I32, (1,))
    graph.input(F32, (2,))
    graph.apply("LESS", [i, graph.constant(I32, [limit])], [graph.output(BOOL8, (1,))])
    return graph


def _body(step: int) -> CaseGraph:
    """Return the body: i += step, x *= 2."""
    graph = CaseGraph()
    i, x = graph.input(I32, (1,)), graph.input(F32, (2,))
    none = graph.int32(0)
    graph.apply("ADD", [i, graph.constant(I32, [step]), none], [graph.output(I32, (1,))])
    graph.apply("MUL", [x, graph.constant(F32, [2.0]), none], [graph.output(F32, (2,))])
    return graph


def _while(name: str, iterations: int, step: int, *, expect_failure: bool = False) -> Case:
    graph = CaseGraph()
    condition, body = graph.subgraph(0), graph.subgraph(1)
    inputs = [condition, body, graph.input(I32, (1,)), graph.input(F32, (2,))]
    graph.apply("WHILE", inputs, [graph.output(I32, (1,)), graph.output(F32, (2,))])
    x = np.array([1.5, -3])
    outputs = [[iterations], x * 2**iterations]
    return make_case(
        name, graph, [[0], x], outputs, referenced=[_condition(iterations), _body(step)], expect_failure=expect_failure
    )


@register
def while_5_turns() -> Case:
    """Return a WHILE with a counter and a value that doubles."""
    return _while("while_5_turns", 5, 1)


@register
def while_without_end() -> Case:
    """Return a WHILE whose counter never rises, so that only the loop timeout ends it."""
    return _while("while_without_end", 5, 0, expect_failure=True)
