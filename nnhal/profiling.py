"""What a profiled execution gives: outputs, and how long its parts took; also as a trace for Perfetto and Chrome."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nnhal import wire
from nnhal.prepared import nanoseconds
from nnhal.tensors import Outputs
from nnhal.types import ExecutionConfig, Span, SpanKind
from nnhal.v1 import prepared_model_pb2, types_pb2

_CONFIG = wire.execution_config_message(ExecutionConfig(measure_timing=True, profile=True))
_NAMES: dict[int, str] = {SpanKind.PARTITION: "partition", SpanKind.OPERATION: "operation", SpanKind.WORK: "work"}


@dataclass(frozen=True)
class Profile:
    """A profiled execution.

    Attributes:
        outputs: with `timing`.
        spans: what was measured, in the order in which it ended. A device that does not know of it gives none.
        dropped: how many spans were too many.
    """

    outputs: Outputs
    spans: tuple[Span, ...]
    dropped: int


def profile_request(
    session: bytes, handle: bytes, request: types_pb2.Request, deadline: float | None
) -> prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest:
    """The request of a profiled execution."""
    return prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest(
        session=session,
        prepared_model=handle,
        request=request,
        config=_CONFIG,
        deadline_ns=nanoseconds(deadline),
    )


def trace(executions: Iterable[Sequence[Span]]) -> dict[str, Any]:
    """Executions as one trace in Chrome's JSON form: a process each, in it a row for each backend."""
    events: list[dict[str, Any]] = []
    for number, spans in enumerate(executions):
        rows = {backend: row for row, backend in enumerate(dict.fromkeys(span.backend for span in spans))}
        events.append(_named("process_name", number, 0, f"execution {number}"))
        events += [_named("thread_name", number, row, backend) for backend, row in rows.items()]
        events += [_event(span, number, rows[span.backend]) for span in sorted(spans, key=_outer_first)]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _outer_first(span: Span) -> tuple[int, int]:
    return span.start_ns, -span.duration_ns


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _event(span: Span, process: int, thread: int) -> dict[str, Any]:
    where = {"subgraph": span.subgraph, "operations": list(span.operations)}
    name = f"partition of {len(span.operations)}" if span.kind == SpanKind.PARTITION else span.name
    return {
        "ph": "X",
        "name": name,
        "cat": _NAMES.get(span.kind, "work"),
        "pid": process,
        "tid": thread,
        "ts": span.start_ns / 1e3,
        "dur": span.duration_ns / 1e3,
        "args": where,
    }
