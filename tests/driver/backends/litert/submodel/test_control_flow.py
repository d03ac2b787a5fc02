"""IF and WHILE: subgraphs fit their calls, calls end, and the trips of every loop are bounded."""

import itertools

import numpy as np
import pytest

from nnhal_driver.backends.litert.submodel import SubModelLimits
from tests.driver.backends.litert.submodel.checking import changed, check, refusal, set_field
from tests.driver.backends.litert.submodel.control_flow import (
    body,
    branch,
    condition,
    control_flow_models,
    counted_loop,
    counter,
    join,
    loop,
    unary,
)
from tests.nnhal.tflite.build import Op, Tensor, build, options, unpack

X = Tensor((2, 3))
NOT_BOUNDED = "operator 0 (WHILE): the number of trips is not bounded"


def small_condition(**more: object) -> bytes:
    return condition(counter(), [X], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", range(len(control_flow_models())))
def test_valid_models_are_accepted(index: int) -> None:
    check(control_flow_models()[index])


@pytest.mark.parametrize(
    "model",
    [
        loop(small_condition(), body(counter(), X), start=counter()),
        loop(small_condition(limit=counter()), body(counter(), X)),
        loop(small_condition(operator="EQUAL"), body(counter(), X)),
        loop(small_condition(), body(counter(), X, counter(0))),
        loop(small_condition(), body(counter(), X, counter(-1))),
        loop(small_condition(), body(counter(), X, counter())),
        loop(small_condition(), body(counter(), X, fusedActivationFunction=3)),
        loop(small_condition(limit=counter(2**31 - 1)), body(counter(), X, counter(2))),
    ],
    ids=[
        "start is an input",
        "limit is an input",
        "comparison for equality",
        "step 0",
        "step -1",
        "step is not constant",
        "step is clamped",
        "counter wraps around",
    ],
)
def test_unbounded_loop_is_refused(model: bytes) -> None:
    message = refusal(model)
    assert message.startswith((NOT_BOUNDED, "subgraph ")), message


def test_long_loop_is_refused() -> None:
    model = loop(small_condition(limit=counter(70_000)), body(counter(), X))
    assert refusal(model) == "operator 0 (WHILE): 70000 trips are possible; at most 65536 are supported"
    check(loop(small_condition(limit=counter(60_000)), body(counter(), X)))


def test_trips_multiply_the_work() -> None:
    model = loop(small_condition(limit=counter(1000)), body(counter(), X))
    assert "operator executions" in refusal(model, SubModelLimits(executions=3000))
    check(model, SubModelLimits(executions=3003))


def test_body_must_return_what_it_takes() -> None:
    other = build(
        Op("ADD", [c := counter(), counter(1)], [n := counter()], options("Add")),
        Op("SUM", [X, Tensor((1,), "INT32", [0])], [s := Tensor((3,))], options("Reducer")),
        inputs=[c, X],
        outputs=[n, s],
    )
    assert "the outputs of the body: number 1 is FLOAT32 [3]; expected FLOAT32 [2, 3]" in refusal(
        loop(small_condition(), other)
    )


def test_subgraphs_fit_their_calls() -> None:
    model = loop(condition(counter(), [Tensor((2,))]), body(counter(), X))
    assert "the inputs of subgraph 1: number 1 is FLOAT32 [2]; expected FLOAT32 [2, 3]" in refusal(model)
    wide = branch(unary("ABS", Tensor((3,)), options("Abs")), unary("FLOOR", X))
    assert "operator 0 (IF): the inputs of subgraph 1: number 0 is FLOAT32 [3]" in refusal(wide)


@pytest.mark.parametrize("index", [-1, 0, 3, 2**31 - 1])
def test_number_of_the_subgraph_is_checked(index: int) -> None:
    model = changed(
        counted_loop(), lambda m: setattr(m.subgraphs[0].operators[0].builtinOptions, "bodySubgraphIndex", index)
    )
    assert f"body_subgraph_index is {index}; expected 1 to 2" in refusal(model)


def test_subgraph_that_calls_itself_is_refused() -> None:
    table = options("If", thenSubgraphIndex=1, elseSubgraphIndex=1)
    flag = Tensor((1,), "BOOL", np.array([True]))
    recursive = build(Op("IF", [flag, X], [Tensor((2, 3))], table), inputs=[X])
    outer = build(Op("IF", [Tensor((), "BOOL"), X], [Tensor((2, 3))], table))
    assert "subgraph 1 calls itself" in refusal(join(outer, recursive))


def test_unused_subgraph_is_refused() -> None:
    negated = unary("NEG", X, options("Neg"))
    assert refusal(join(unary("FLOOR", X), negated)) == "subgraph 1: no operator calls it"


def nested(depth: int) -> bytes:
    graphs = []
    for level in range(depth):
        table = options("If", thenSubgraphIndex=level + 1, elseSubgraphIndex=level + 1)
        flag = Tensor((1,), "BOOL", np.array([True]))
        graphs.append(build(Op("IF", [flag, X], [Tensor((2, 3))], table), inputs=[X]))
    return join(*graphs, unary("FLOOR", X))


def test_depth_of_calls_is_limited() -> None:
    check(nested(3))
    assert "needs 4 levels of IF and WHILE; at most 3" in refusal(nested(4))


def test_shared_subgraphs_are_counted_each_time_and_visited_once() -> None:
    """Otherwise a chain of subgraphs with two calls each would take exponential time to verify."""
    graphs = []
    for level in range(40):
        table = options("If", thenSubgraphIndex=level + 1, elseSubgraphIndex=level + 1)
        flag, middle = Tensor((1,), "BOOL", np.array([True])), Tensor((2, 3))
        ops = [Op("IF", [flag, X], [middle], table), Op("IF", [flag, middle], [Tensor((2, 3))], table)]
        graphs.append(build(*ops, inputs=[X]))
    message = refusal(join(*graphs, unary("FLOOR", X)), SubModelLimits(depth=64))
    assert "operator executions" in message


def test_long_chain_of_conditions_is_analyzed_once() -> None:
    """LOGICAL_AND of a tensor with itself, many times, must not double the analysis."""
    flags = [Tensor((), "BOOL") for _ in range(60)]
    i = counter()
    ops = [Op("LESS", [i, counter(5)], [flags[0]])]
    ops += [Op("LOGICAL_AND", [a, a], [b]) for a, b in itertools.pairwise(flags)]
    check(loop(build(*ops, inputs=[i, X]), body(counter(), X)))


def test_condition_gives_one_boolean() -> None:
    model = changed(counted_loop(), set_field("subgraphs.1.outputs", [0]))
    assert "the output of the condition is INT32 []; expected one element of BOOL" in refusal(model)
    assert "the condition has 2 outputs" in refusal(changed(counted_loop(), set_field("subgraphs.1.outputs", [2, 2])))


def test_messages_name_the_subgraph() -> None:
    model = unpack(counted_loop())
    assert len(model.subgraphs) == 3
    wrong = changed(counted_loop(), set_field("subgraphs.2.tensors.1.type", 0))
    assert refusal(wrong).startswith(("subgraph 2, ", "operator 0 (WHILE): "))


def test_operators_of_the_body_are_checked_before_its_steps_are_analyzed() -> None:
    without_options = changed(counted_loop(), lambda m: setattr(m.subgraphs[2].operators[0], "builtinOptionsType", 0))
    assert refusal(without_options) == "subgraph 2, operator 0 (ADD): options are of type none; expected AddOptions"
    for inputs in ([0], [0, 1, 1], [-1, 0]):
        wrong = changed(counted_loop(), set_field("subgraphs.2.operators.0.inputs", inputs))
        assert refusal(wrong).startswith("subgraph 2, operator 0 (ADD): ")
