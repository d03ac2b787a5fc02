"""Profiling: spans of partitions and operations, and their maximum number."""

import threading

import numpy as np
import pytest

from nnhal.types import (
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    Memory,
    Request,
    RequestArgument,
    SpanKind,
)
from nnhal.types import OperationType as Op
from nnhal_driver.execution import profiling
from tests.driver.control_flow_models import counts, f, less_than, loop
from tests.driver.fake_backend import SMALL, Fake, device_of, graph_of
from tests.driver.one_operation import execute, execute_profiled, prepare

MODEL = graph_of([(-1, -1), (0, 0), (1, 0)], [Op.ADD, Op.MUL, Op.MAXIMUM])


def test_partitions_contain_their_operations() -> None:
    result = execute_profiled(prepare(MODEL), [np.ones(SMALL, np.float32)])
    *operations, whole = result.spans
    assert [(span.kind, span.name, span.operations) for span in operations] == [
        (SpanKind.OPERATION, "ADD", (0,)),
        (SpanKind.OPERATION, "MUL", (1,)),
        (SpanKind.OPERATION, "MAXIMUM", (2,)),
    ]
    assert (whole.kind, whole.backend, whole.subgraph, whole.operations) == (SpanKind.PARTITION, "CpuRef", 0, (0, 1, 2))
    ends = [0, *(span.start_ns + span.duration_ns for span in operations)]
    assert all(end <= span.start_ns for end, span in zip(ends, operations, strict=False)), "one after the other"
    assert whole.start_ns <= operations[0].start_ns
    assert ends[-1] <= whole.start_ns + whole.duration_ns


def test_nothing_is_measured_by_default() -> None:
    assert execute(prepare(MODEL), [np.ones(SMALL, np.float32)])[0].spans == ()


def test_each_partition_names_its_backend() -> None:
    with device_of(Fake("A", numbers=[0, 2]), Fake("B")) as device:
        large = graph_of([(-1, -1), (0, 0), (1, 0)], [Op.ADD, Op.MUL, Op.MAXIMUM], (300, 300))
        result = execute_profiled(prepare(large, device), [np.ones((300, 300), np.float32)])
    wholes = [(span.backend, span.operations) for span in result.spans if span.kind == SpanKind.PARTITION]
    assert wholes == [("A", (0,)), ("B", (1,)), ("A", (2,))]
    assert [(span.backend, span.name) for span in result.spans if span.kind == SpanKind.OPERATION] == [
        ("A", "ADD"),
        ("B", "MUL"),
        ("A", "MAXIMUM"),
    ]


def test_loop_records_each_iteration_and_itself() -> None:
    result = execute_profiled(prepare(loop(less_than(), counts())), [f(0), f(3)])
    assert (result.spans[-1].backend, result.spans[-1].subgraph) == ("driver", 0)
    subgraphs = [span.subgraph for span in result.spans if span.kind == SpanKind.PARTITION]
    assert subgraphs == [1, 2, 1, 2, 1, 2, 1, 0]


def test_excess_spans_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_SPANS", 4)
    result = execute_profiled(prepare(loop(less_than(), counts())), [f(0), f(3)])
    assert len(result.spans) == 4
    assert result.dropped_spans == 15 - 4


def test_fenced_execution_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnhal_driver.execution.prepared_model.SpanRecorder", lambda: pytest.fail("measured"))
    prepared = prepare(MODEL).prepared_model
    assert prepared is not None
    output = np.empty(SMALL, np.float32)
    request = Request(
        (RequestArgument(False, DataLocation(0, 0, output.nbytes)),),
        (RequestArgument(False, DataLocation(1, 0, output.nbytes)),),
        (Memory.of(np.ones(SMALL, np.float32)), Memory(output.view(np.uint8))),
    )
    execution = prepared.execute_fenced(request, ExecutionConfig(profile=True))
    ended = threading.Event()
    execution.fence.add_listener(lambda _: ended.set())
    assert ended.wait(60)
    assert execution.info().status == ErrorStatus.NONE
    assert output.tolist() == [4, 4]
