"""Traces of profiled executions."""

import json
from typing import Any

import numpy as np
import pytest

from nnhal.client.core.arrays import Outputs
from nnhal.client.core.profile import GRPC, SHARED_MEMORY, ExecutionProfile
from nnhal.profiling import trace
from nnhal.types import UNMEASURED, Model, Operand, OperandType, Operation, OperationType, Span, SpanKind, Subgraph
from tests.trace_format import check_trace

STAGE, PARTITION, OPERATION, WORK = SpanKind.STAGE, SpanKind.PARTITION, SpanKind.OPERATION, SpanKind.WORK
SERVICE = (
    Span(STAGE, "decode", "", 0, (), -300, 100),
    Span(STAGE, "queue", "", 0, (), -200, 200),
    Span(OPERATION, "ADD", "CpuAcc", 0, (0,), 100, 300),
    Span(OPERATION, "MUL", "CpuAcc", 0, (1,), 450, 100),
    Span(PARTITION, "CpuAcc", "CpuAcc", 0, (0, 1), 50, 550),
    Span(STAGE, "execute", "", 0, (), 0, 700),
    Span(STAGE, "encode", "", 0, (), 750, 50),
)
"""1100 ns on the service."""
CLIENT = (
    Span(STAGE, "encode", "", 0, (), 0, 200),
    Span(STAGE, "upload", "", 0, (), 200, 300),
    Span(STAGE, "send", "", 0, (), 500, 100),
    Span(STAGE, "wait", "", 0, (), 600, 1400),
    Span(STAGE, "download", "", 0, (), 2000, 250),
)
"""1500 ns from the begin of send to the end of wait: 200 ns in each direction."""


def profile(started_ns: int = 5000, transport: str = SHARED_MEMORY) -> ExecutionProfile:
    outputs = Outputs.of([np.zeros(1)], (), UNMEASURED)
    return ExecutionProfile(outputs, SERVICE, 0, CLIENT, started_ns, transport)


def events_of(*executions: Any, model: Model | None = None) -> list[dict[str, Any]]:
    return check_trace(json.dumps(trace(executions, model)))


def rows(events: list[dict[str, Any]]) -> list[tuple[str, str, float, float]]:
    return [(event["cat"], event["name"], event["ts"], event["dur"]) for event in events]


def test_call_contains_client_service_partition_and_operation() -> None:
    assert rows(events_of(profile())) == [
        ("client", "execute 0", 0, 2.25),
        ("client", "encode", 0, 0.2),
        ("transfer", "upload", 0.2, 0.3),
        ("client", "send", 0.5, 0.1),
        ("client", "wait", 0.6, 1.4),
        ("transfer", "download", 2.0, 0.25),
        ("transfer", "request by shared memory", 0.5, 0.2),
        ("transfer", "response by shared memory", 1.8, 0.2),
        ("service", "execute 0", 0.7, 1.1),
        ("service", "decode", 0.7, 0.1),
        ("service", "queue", 0.8, 0.2),
        ("service", "execute", 1.0, 0.7),
        ("partition", "partition of 2", 1.05, 0.55),
        ("operation", "ADD", 1.1, 0.3),
        ("operation", "MUL", 1.45, 0.1),
        ("service", "encode", 1.75, 0.05),
    ]


def test_executions_are_on_one_time_line() -> None:
    starts = [event["ts"] for event in events_of(profile(5000), profile(9000)) if event["name"].startswith("execute ")]
    assert starts == [0, 0.7, 4.0, 4.7]


def test_spans_alone_follow_each_other() -> None:
    events = events_of(SERVICE, SERVICE)
    assert [(e["name"], e["ts"]) for e in events if e["cat"] == "partition"] == [
        ("partition of 2", 0.35),
        ("partition of 2", 1.45),
    ]
    assert {event["pid"] for event in events} == {2}


def test_operations_have_names_types_and_backends() -> None:
    tensor = Operand(OperandType.TENSOR_FLOAT32, (2, 3))
    operations = (Operation(OperationType.ADD, (0, 0), (1,)), Operation(OperationType.MUL, (0, 1), (2,)))
    model = Model(
        Subgraph((tensor,) * 3, operations, (0,), (2,)), operation_names=("operator 0 (ADD)", "operator 7 (MUL)")
    )
    operation = next(event for event in events_of(profile(), model=model) if event["name"] == "MUL")
    assert operation["args"] == {
        "backend": "CpuAcc",
        "subgraph": 0,
        "operations": [1],
        "origin": "operator 7 (MUL)",
        "inputs": ["TENSOR_FLOAT32 [2, 3]", "TENSOR_FLOAT32 [2, 3]"],
        "outputs": ["TENSOR_FLOAT32 [2, 3]"],
    }


def test_work_on_several_threads_is_on_several_rows() -> None:
    spans = [
        Span(PARTITION, "x", "x", 0, (0,), 0, 100),
        Span(WORK, "first", "x", 0, (), 10, 50),
        Span(WORK, "second", "x", 0, (), 40, 50),
    ]
    threads = {event["name"]: event["tid"] for event in events_of(spans)}
    assert threads["partition of 1"] == threads["first"] != threads["second"]
    names = [e["args"]["name"] for e in trace([spans])["traceEvents"] if e["name"] == "thread_name"]
    assert names == ["x", "x (2)"]


@pytest.mark.parametrize("transport", [GRPC, SHARED_MEMORY])
def test_transfers_name_their_transport(transport: str) -> None:
    names = [event["name"] for event in events_of(profile(transport=transport)) if event["cat"] == "transfer"]
    assert names == ["upload", "download", f"request by {transport}", f"response by {transport}"]


def test_service_without_profiling_shows_the_client() -> None:
    outputs = Outputs.of([np.zeros(1)], (), UNMEASURED)
    events = events_of(ExecutionProfile(outputs, (), 0, CLIENT, 0, GRPC))
    assert {event["pid"] for event in events} == {1} and len(events) == 1 + len(CLIENT)


def test_service_clock_that_runs_faster_stays_in_order() -> None:
    """The spans of the service may be longer than the client's wait."""
    slow = [Span(s.kind, s.name, s.backend, 0, s.operations, 2 * s.start_ns, 2 * s.duration_ns) for s in SERVICE]
    outputs = Outputs.of([np.zeros(1)], (), UNMEASURED)
    events_of(ExecutionProfile(outputs, tuple(slow), 0, CLIENT, 0, GRPC))


def test_no_execution_is_an_empty_trace() -> None:
    assert events_of() == []
