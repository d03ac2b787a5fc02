"""IF and WHILE: branches, loops, the loop timeout and nesting."""

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
    Request,
    RequestArgument,
    ReturnedPool,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.preparation.launch import GivenModel
from tests.driver.control_flow_models import (
    VALUES,
    GraphWriter,
    adds_one,
    choose,
    counts,
    doubles,
    f,
    less_than,
    loop,
    nested,
)
from tests.driver.one_operation import device, execute, prepare


def run(model: Model, *inputs: AnyArray) -> AnyArray:
    return execute(prepare(model), inputs)[1][0]


@pytest.mark.parametrize(("condition", "expected"), [(True, 6), (False, 10)])
def test_if_runs_the_chosen_branch(condition: bool, expected: float) -> None:
    assert run(choose(adds_one(), doubles()), np.array([condition]), f(5)) == expected


def test_any_byte_but_zero_is_true() -> None:
    outcome = prepare(choose(adds_one(), doubles()))
    condition = np.array([7], np.uint8)
    assert execute(outcome, [condition, f(5)])[1][0] == 6


def test_branches_of_unknown_shape() -> None:
    model = choose(adds_one((0,)), doubles((0,)), (0,))
    np.testing.assert_array_equal(run(model, np.array([False]), f(1, 2, 3)), [2, 4, 6])
    np.testing.assert_array_equal(run(model, np.array([True]), f(1, 2)), [2, 3])


def test_unsupported_operation_makes_the_if_unsupported() -> None:
    model = choose(adds_one(), adds_one(type_=0x10001))
    supported, placement = device().get_supported_operations(GivenModel(model))
    assert supported == [False]
    assert "operation 0 of referenced subgraph 1" in placement.operations[0].refusals[0].reason
    assert prepare(model).status == ErrorStatus.GENERAL_FAILURE


def test_unreferenced_subgraph_is_ignored() -> None:
    model = choose(adds_one(), doubles())
    spare = Model(model.main, (*model.referenced, adds_one(type_=0x10001)), VALUES)
    assert run(spare, np.array([True]), f(5)) == 6


@pytest.mark.parametrize(("start", "limit", "expected"), [(0, 4, 4), (0, 3.5, 4), (9, 4, 9)])
def test_while_counts(start: float, limit: float, expected: float) -> None:
    assert run(loop(less_than(), counts()), f(start), f(limit)) == expected


def test_endless_loop_times_out() -> None:
    prepared = prepare(loop(less_than(), counts())).prepared_model
    assert prepared is not None
    arrays = [f(0), f(np.inf)]
    request = Request(
        tuple(RequestArgument(False, DataLocation(i, 0, 4)) for i in range(2)),
        (RequestArgument(False, DataLocation(2)),),
        (*map(Memory.of, arrays), ReturnedPool()),
    )
    for timeout, text in ((1_000_000, "1 ms"), (0, "0 ms")):
        with pytest.raises(HalError, match=f"loop timeout of {text} has passed") as caught:
            prepared.execute_synchronously(request, ExecutionConfig(loop_timeout_duration_ns=timeout))
        assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT


def test_loop_without_iterations_cannot_time_out() -> None:
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


def test_nested_control_flow_runs() -> None:
    assert run(nested(60), np.array([True]), f(1)) == 2


def test_too_deep_nesting_is_rejected() -> None:
    outcome = prepare(nested(5000))
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "nested more than" in outcome.reason


def test_output_of_main_that_another_operation_reads() -> None:
    """Main is y = IF(c, x) and z = y + 1. Both are outputs."""
    w = GraphWriter()
    condition, a, b, x = w.input(T.TENSOR_BOOL8), w.reference(0), w.reference(1), w.input()
    one, none = w.constant(T.TENSOR_FLOAT32, 8, (1,)), w.constant(T.INT32, 0)
    y = w.apply(Op.IF, [condition, a, b, x])
    w.apply(Op.ADD, [y, one, none])
    model = Model(w.graph(), (adds_one(), doubles()), VALUES)
    _, outputs = execute(prepare(model), [np.array([True]), f(5)])
    assert [float(o[0]) for o in outputs] == [6, 7]
