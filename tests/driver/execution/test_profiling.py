"""Profiling: spans of partitions and operations, and their maximum number."""

import threading
from typing import Any

import numpy as np
import pytest

from nnhal.types import (
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    ExecutionResult,
    Memory,
    Request,
    RequestArgument,
    Span,
    SpanKind,
)
from nnhal.types import OperationType as Op
from nnhal_driver.execution import profiling
from nnhal_driver.execution.profiling import SpanRecorder, later_stage
from nnhal_driver.scheduling.admission import AdmissionQueue, BlockingTicket
from tests.driver.control_flow_models import counts, f, less_than, loop
from tests.driver.fake_backend import SMALL, Fake, device_of, graph_of
from tests.driver.one_operation import execute, execute_profiled, prepare

MODEL = graph_of([(-1, -1), (0, 0), (1, 0)], [Op.ADD, Op.MUL, Op.MAXIMUM])


def test_partitions_contain_their_operations() -> None:
    result = execute_profiled(prepare(MODEL), [np.ones(SMALL, np.float32)])
    _, _, *operations, whole, _ = result.spans
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


def test_stages_follow_each_other() -> None:
    spans = execute_profiled(prepare(MODEL), [np.ones(SMALL, np.float32)]).spans
    decode, queue, execute_ = stages = [span for span in spans if span.kind == SpanKind.STAGE]
    assert [(span.name, span.backend) for span in stages] == [("decode", ""), ("queue", ""), ("execute", "")]
    assert decode.start_ns + decode.duration_ns == queue.start_ns
    assert queue.start_ns + queue.duration_ns == execute_.start_ns == 0
    assert all(0 <= s.start_ns <= s.start_ns + s.duration_ns <= execute_.duration_ns for s in spans if s not in stages)
    assert spans[:2] == (decode, queue) and spans[-1] == execute_, "in the order of their ends"


def test_queue_is_from_the_end_of_decoding_to_the_slot() -> None:
    times = iter([100, 130, 200])
    recorder = SpanRecorder(lambda: next(times))
    recorder.begin(received_ns=90)
    recorder.end()
    assert [(span.name, span.start_ns, span.duration_ns) for span in recorder.all()] == [
        ("decode", -40, 10),
        ("queue", -30, 30),
        ("execute", 0, 70),
    ]


def test_stage_after_the_execution() -> None:
    times = iter([100, 130, 200, 260])
    clock = times.__next__
    recorder = SpanRecorder(clock)
    recorder.begin(received_ns=90)
    recorder.end()
    result = ExecutionResult(True, spans=recorder.all())
    assert later_stage("encode", result, 90, 210, clock) == Span(SpanKind.STAGE, "encode", "", 0, (), 80, 50)


def test_time_in_the_queue_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder exists before the execution has its slot."""
    recorders: list[SpanRecorder] = []
    admit, waiting = AdmissionQueue.admit, []

    def create() -> SpanRecorder:
        recorders.append(SpanRecorder())
        return recorders[-1]

    def admit_and_count(*arguments: Any) -> BlockingTicket:
        waiting.append(len(recorders))
        return admit(*arguments)

    monkeypatch.setattr("nnhal_driver.execution.execution_call.SpanRecorder", create)
    monkeypatch.setattr(AdmissionQueue, "admit", admit_and_count)
    execute_profiled(prepare(MODEL), [np.ones(SMALL, np.float32)])
    assert waiting == [1]


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
    assert (result.spans[-2].backend, result.spans[-2].subgraph) == ("driver", 0)
    subgraphs = [span.subgraph for span in result.spans if span.kind == SpanKind.PARTITION]
    assert subgraphs == [1, 2, 1, 2, 1, 2, 1, 0]


def test_excess_spans_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_SPANS", 4)
    result = execute_profiled(prepare(loop(less_than(), counts())), [f(0), f(3)])
    assert [span.name for span in result.spans if span.kind == SpanKind.STAGE] == ["decode", "queue", "execute"]
    assert len(result.spans) == 4 + 3
    assert result.dropped_spans == 15 - 4


def test_spans_of_a_fenced_execution() -> None:
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
    info = execution.info()
    assert info.status == ErrorStatus.NONE
    assert output.tolist() == [4, 4]
    assert [span.name for span in info.spans if span.kind == SpanKind.OPERATION] == ["ADD", "MUL", "MAXIMUM"]
    assert [span.name for span in info.spans if span.kind == SpanKind.STAGE] == ["decode", "fences", "queue", "execute"]
