"""IF and WHILE: what they run, when they end, and how deep they may go."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Request,
    RequestArgument,
    ReturnedPool,
    Subgraph,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import device, execute, prepare

VALUES = np.array([0, 1], np.int32).tobytes() + np.array([1], np.float32).tobytes()
"""Constants of every graph: INT32 0 at 0, INT32 1 at 4, float [1] at 8."""


class GraphWriter:
    """Puts a subgraph together."""

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.operations: list[Operation] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def add(self, operand: Operand) -> int:
        self.operands.append(operand)
        return len(self.operands) - 1

    def input(self, type_: T = T.TENSOR_FLOAT32, shape: Sequence[int] = (1,)) -> int:
        self.inputs.append(self.add(Operand(type_, tuple(shape), lifetime=OperandLifeTime.SUBGRAPH_INPUT)))
        return self.inputs[-1]

    def constant(self, type_: T, offset: int, shape: Sequence[int] = ()) -> int:
        location = DataLocation(0, offset, 4)
        return self.add(Operand(type_, tuple(shape), lifetime=OperandLifeTime.CONSTANT_COPY, location=location))

    def reference(self, number: int) -> int:
        return self.add(Operand(T.SUBGRAPH, lifetime=OperandLifeTime.SUBGRAPH, location=DataLocation(0, number, 0)))

    def apply(
        self,
        type_: int,
        inputs: Sequence[int],
        kind: T = T.TENSOR_FLOAT32,
        shape: Sequence[int] = (1,),
        last: bool = True,
    ) -> int:
        lifetime = OperandLifeTime.SUBGRAPH_OUTPUT if last else OperandLifeTime.TEMPORARY_VARIABLE
        output = self.add(Operand(kind, tuple(shape), lifetime=lifetime))
        self.operations.append(Operation(type_, tuple(inputs), (output,)))
        if last:
            self.outputs.append(output)
        return output

    def graph(self) -> Subgraph:
        return Subgraph(tuple(self.operands), tuple(self.operations), tuple(self.inputs), tuple(self.outputs))


def adds_one(shape: Sequence[int] = (1,), type_: int = Op.ADD) -> Subgraph:
    """x -> x + 1."""
    w = GraphWriter()
    x, one, none = w.input(shape=shape), w.constant(T.TENSOR_FLOAT32, 8, (1,)), w.constant(T.INT32, 0)
    w.apply(type_, [x, one, none], shape=shape)
    return w.graph()


def doubles(shape: Sequence[int] = (1,)) -> Subgraph:
    """x -> x + x."""
    w = GraphWriter()
    x, none = w.input(shape=shape), w.constant(T.INT32, 0)
    w.apply(Op.ADD, [x, x, none], shape=shape)
    return w.graph()


def choose(then: Subgraph, otherwise: Subgraph, shape: Sequence[int] = (1,)) -> Model:
    """(condition, x) -> then(x) or otherwise(x)."""
    w = GraphWriter()
    condition, a, b, x = w.input(T.TENSOR_BOOL8), w.reference(0), w.reference(1), w.input(shape=shape)
    w.apply(Op.IF, [condition, a, b, x], shape=shape)
    return Model(w.graph(), (then, otherwise), VALUES)


def less_than(limit_is_input: bool = True) -> Subgraph:
    """(x, limit) -> x < limit."""
    w = GraphWriter()
    x, limit = w.input(), w.input()
    w.apply(Op.LESS if limit_is_input else Op.GREATER_EQUAL, [x, limit], T.TENSOR_BOOL8)
    return w.graph()


def counts() -> Subgraph:
    """(x, limit) -> x + 1."""
    w = GraphWriter()
    x, _, one, none = w.input(), w.input(), w.constant(T.TENSOR_FLOAT32, 8, (1,)), w.constant(T.INT32, 0)
    w.apply(Op.ADD, [x, one, none])
    return w.graph()


def loop(condition: Subgraph, body: Subgraph) -> Model:
    """(x, limit) -> x, counted up while the condition holds."""
    w = GraphWriter()
    c, b, x, limit = w.reference(0), w.reference(1), w.input(), w.input()
    w.apply(Op.WHILE, [c, b, x, limit])
    return Model(w.graph(), (condition, body), VALUES)


def run(model: Model, *inputs: AnyArray) -> AnyArray:
    return execute(prepare(model), inputs)[1][0]


def f(*values: float) -> AnyArray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(("condition", "expected"), [(True, 6), (False, 10)])
def test_if_runs_the_branch_that_is_chosen(condition: bool, expected: float) -> None:
    assert run(choose(adds_one(), doubles()), np.array([condition]), f(5)) == expected


def test_any_byte_but_zero_is_true() -> None:
    outcome = prepare(choose(adds_one(), doubles()))
    condition = np.array([7], np.uint8)
    assert execute(outcome, [condition, f(5)])[1][0] == 6


def test_branches_of_unknown_shape() -> None:
    model = choose(adds_one((0,)), doubles((0,)), (0,))
    np.testing.assert_array_equal(run(model, np.array([False]), f(1, 2, 3)), [2, 4, 6])
    np.testing.assert_array_equal(run(model, np.array([True]), f(1, 2)), [2, 3])


def test_an_operation_that_nobody_takes_makes_the_if_unsupported() -> None:
    model = choose(adds_one(), adds_one(type_=0x10001))
    supported, placement = device().get_supported_operations(model)
    assert supported == [False]
    assert "operation 0 of referenced subgraph 1" in placement.operations[0].refusals[0].reason
    assert prepare(model).status == ErrorStatus.GENERAL_FAILURE


def test_a_subgraph_that_nothing_refers_to_does_not_matter() -> None:
    model = choose(adds_one(), doubles())
    spare = Model(model.main, (*model.referenced, adds_one(type_=0x10001)), VALUES)
    assert run(spare, np.array([True]), f(5)) == 6


@pytest.mark.parametrize(("start", "limit", "expected"), [(0, 4, 4), (0, 3.5, 4), (9, 4, 9)])
def test_while_counts(start: float, limit: float, expected: float) -> None:
    assert run(loop(less_than(), counts()), f(start), f(limit)) == expected


def test_a_while_that_never_ends_is_ended() -> None:
    prepared = prepare(loop(less_than(), counts())).prepared_model
    assert prepared is not None
    arrays = [f(0), f(np.inf)]
    request = Request(
        tuple(RequestArgument(False, DataLocation(i, 0, 4)) for i in range(2)),
        (RequestArgument(False, DataLocation(2)),),
        (*map(Memory.of, arrays), ReturnedPool()),
    )
    for timeout, text in ((1_000_000, "1 ms"), (0, "0 ms")):
        with pytest.raises(HalError, match=f"loop timeout of {text} is over") as caught:
            prepared.execute_synchronously(request, ExecutionConfig(loop_timeout_duration_ns=timeout))
        assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT


def test_a_loop_that_does_not_start_cannot_time_out() -> None:
    prepared = prepare(loop(less_than(), counts())).prepared_model
    assert prepared is not None
    request = Request(
        tuple(RequestArgument(False, DataLocation(i, 0, 4)) for i in range(2)),
        (RequestArgument(False, DataLocation(2)),),
        (Memory.of(f(5)), Memory.of(f(4)), ReturnedPool()),
    )
    result = prepared.execute_synchronously(request, ExecutionConfig(loop_timeout_duration_ns=0))
    assert result.returned[0] is not None
    assert result.returned[0].view(DTYPES[T.TENSOR_FLOAT32]) == 5


def nested(depth: int) -> Model:
    """(condition, x): an IF in an IF in an IF ...; the innermost adds one."""

    def outer(number: int) -> Subgraph:
        w = GraphWriter()
        condition, a, b, x = w.input(T.TENSOR_BOOL8), w.reference(number), w.reference(number), w.input()
        w.apply(Op.IF, [condition, a, b, condition, x] if number < depth - 1 else [condition, a, b, x])
        return w.graph()

    return Model(outer(0), (*(outer(i) for i in range(1, depth)), adds_one()), VALUES)


def test_nesting() -> None:
    assert run(nested(60), np.array([True]), f(1)) == 2


def test_nesting_too_deep_is_refused_not_fatal() -> None:
    outcome = prepare(nested(5000))
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "nested more than" in outcome.reason


def test_an_output_of_main_that_is_read_again() -> None:
    """main: y = IF(c, x); z = y + 1; both are outputs."""
    w = GraphWriter()
    condition, a, b, x = w.input(T.TENSOR_BOOL8), w.reference(0), w.reference(1), w.input()
    one, none = w.constant(T.TENSOR_FLOAT32, 8, (1,)), w.constant(T.INT32, 0)
    y = w.apply(Op.IF, [condition, a, b, x])
    w.apply(Op.ADD, [y, one, none])
    model = Model(w.graph(), (adds_one(), doubles()), VALUES)
    _, outputs = execute(prepare(model), [np.array([True]), f(5)])
    assert [float(o[0]) for o in outputs] == [6, 7]
