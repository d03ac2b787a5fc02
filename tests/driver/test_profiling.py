"""Spans: what an execution tells of its partitions and operations, and what it keeps of very many."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from driver import profiling
from driver.deadline import NO_DEADLINE
from driver.device import Outcome
from nnhal.tensors import Ends
from nnhal.types import (
    AnyArray,
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    ExecutionResult,
    Memory,
    Request,
    RequestArgument,
    SpanKind,
)
from nnhal.types import OperationType as Op
from tests.driver.one_operation import execute, prepare
from tests.driver.test_control_flow import counts, f, less_than, loop
from tests.driver.test_placement import SMALL, Fake, device_of, graph_of

MODEL = graph_of([(-1, -1), (0, 0), (1, 0)], [Op.ADD, Op.MUL, Op.MAXIMUM])


def profiled(outcome: Outcome, arrays: Sequence[AnyArray]) -> ExecutionResult:
    prepared = outcome.prepared_model
    assert prepared is not None, outcome.reason
    request = Ends(prepared.inputs, prepared.outputs, (), ()).request(arrays)
    return prepared.execute_synchronously(request, ExecutionConfig(profile=True), NO_DEADLINE.at_ns)


def test_partitions_hold_their_operations() -> None:
    result = profiled(prepare(MODEL), [np.ones(SMALL, np.float32)])
    *operations, whole = result.spans
    assert [(one.kind, one.name, one.operations) for one in operations] == [
        (SpanKind.OPERATION, "ADD", (0,)),
        (SpanKind.OPERATION, "MUL", (1,)),
        (SpanKind.OPERATION, "MAXIMUM", (2,)),
    ]
    assert (whole.kind, whole.backend, whole.subgraph, whole.operations) == (SpanKind.PARTITION, "CpuRef", 0, (0, 1, 2))
    ends = [0, *(one.start_ns + one.duration_ns for one in operations)]
    assert all(end <= one.start_ns for end, one in zip(ends, operations, strict=False)), "one after the other"
    assert whole.start_ns <= operations[0].start_ns
    assert ends[-1] <= whole.start_ns + whole.duration_ns


def test_nothing_is_measured_unless_asked_for() -> None:
    assert execute(prepare(MODEL), [np.ones(SMALL, np.float32)])[0].spans == ()


def test_each_partition_tells_its_own_backend() -> None:
    with device_of(Fake("A", numbers=[0, 2]), Fake("B")) as device:
        large = graph_of([(-1, -1), (0, 0), (1, 0)], [Op.ADD, Op.MUL, Op.MAXIMUM], (300, 300))
        result = profiled(prepare(large, device), [np.ones((300, 300), np.float32)])
    wholes = [(one.backend, one.operations) for one in result.spans if one.kind == SpanKind.PARTITION]
    assert wholes == [("A", (0,)), ("B", (1,)), ("A", (2,))]
    assert [(one.backend, one.name) for one in result.spans if one.kind == SpanKind.OPERATION] == [
        ("A", "ADD"),
        ("B", "MUL"),
        ("A", "MAXIMUM"),
    ]


def test_a_loop_tells_each_turn_and_itself() -> None:
    result = profiled(prepare(loop(less_than(), counts())), [f(0), f(3)])
    assert (result.spans[-1].backend, result.spans[-1].subgraph) == ("driver", 0)
    turns = [one.subgraph for one in result.spans if one.kind == SpanKind.PARTITION]
    assert turns == [1, 2, 1, 2, 1, 2, 1, 0]


def test_what_is_too_much_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_SPANS", 4)
    result = profiled(prepare(loop(less_than(), counts())), [f(0), f(3)])
    assert len(result.spans) == 4
    assert result.dropped_spans == 15 - 4


def test_a_fenced_execution_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driver.prepared_model.Spans", lambda: pytest.fail("measured"))
    prepared = prepare(MODEL).prepared_model
    assert prepared is not None
    output = np.empty(SMALL, np.float32)
    place = DataLocation(1, 0, output.nbytes)
    request = Request(
        (RequestArgument(False, DataLocation(0, 0, output.nbytes)),),
        (RequestArgument(False, place),),
        (Memory.of(np.ones(SMALL, np.float32)), Memory(output.view(np.uint8))),
    )
    execution = prepared.execute_fenced(request, ExecutionConfig(profile=True))
    ended = threading.Event()
    execution.fence.when_over(lambda _: ended.set())
    assert ended.wait(30)
    assert execution.info().status == ErrorStatus.NONE
    assert output.tolist() == [4, 4]
