"""Export of measured spans as a trace for Perfetto and Chrome."""

from collections.abc import Iterable, Sequence
from typing import Any

from nnhal.types import Span, SpanKind

_NAMES: dict[int, str] = {SpanKind.PARTITION: "partition", SpanKind.OPERATION: "operation", SpanKind.WORK: "work"}


def trace(executions: Iterable[Sequence[Span]]) -> dict[str, Any]:
    """Return executions as one trace in Chrome's JSON format.

    Each execution is a process of the trace, and each backend in it a thread.
    """
    events: list[dict[str, Any]] = []
    for number, spans in enumerate(executions):
        rows = {backend: row for row, backend in enumerate(dict.fromkeys(span.backend for span in spans))}
        events.append(_metadata_event("process_name", number, 0, f"execution {number}"))
        events += [_metadata_event("thread_name", number, row, backend) for backend, row in rows.items()]
        events += [_span_event(span, number, rows[span.backend]) for span in sorted(spans, key=_outer_first)]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _outer_first(span: Span) -> tuple[int, int]:
    return span.start_ns, -span.duration_ns


def _metadata_event(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _span_event(span: Span, process: int, thread: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"partition of {len(span.operations)}" if span.kind == SpanKind.PARTITION else span.name,
        "cat": _NAMES.get(span.kind, "work"),
        "pid": process,
        "tid": thread,
        "ts": span.start_ns / 1e3,
        "dur": span.duration_ns / 1e3,
        "args": {"subgraph": span.subgraph, "operations": list(span.operations)},
    }
