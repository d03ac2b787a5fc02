"""Export of profiled executions as a trace for Perfetto and Chrome."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from nnhal.client.core.profile import ExecutionProfile
from nnhal.types import Model, Operand, Span, SpanKind, type_name

Event: TypeAlias = dict[str, Any]
Execution: TypeAlias = ExecutionProfile | Sequence[Span]

_CATEGORIES: dict[int, str] = {
    SpanKind.PARTITION: "partition",
    SpanKind.OPERATION: "operation",
    SpanKind.WORK: "work",
    SpanKind.STAGE: "service",
}
_CLIENT, _SERVICE = 1, 2
"""Processes of the trace."""


def trace(executions: Iterable[Execution], model: Model | None = None) -> dict[str, Any]:
    """Return executions as one trace in the JSON form of Chrome's Trace Event Format.

    Client and service are processes of the trace. On the service, each backend is a thread. The spans of the service
    lie in the middle of the time that the client waited, because client and service have clocks of their own.

    Args:
        executions: results of `PreparedModel.profile`. Of spans alone, those of the service are shown, one execution
            after the other.
        model: the model. Operations are then shown with their operands and their origin in the model's file.
    """
    operations = _operation_arguments(model) if model is not None else []
    tracks = _Tracks()
    first_ns, end_ns = None, 0
    for number, execution in enumerate(executions):
        if isinstance(execution, ExecutionProfile):
            first_ns = execution.started_ns if first_ns is None else first_ns
            start_ns = execution.started_ns - first_ns
            _add_client(tracks, execution, number, start_ns)
            _add_service(tracks, execution.spans, number, start_ns + execution.offset_ns, operations)
        else:
            _add_service(
                tracks, execution, number, end_ns - min((s.start_ns for s in execution), default=0), operations
            )
        end_ns = tracks.end_ns
    return {"traceEvents": tracks.events(), "displayTimeUnit": "ns"}


class _Tracks:
    """Events of a trace, and the names of its processes and threads."""

    def __init__(self) -> None:
        self.end_ns = 0
        self._events: list[Event] = []
        self._threads: dict[tuple[int, str], int] = {}
        self._open: dict[tuple[int, int], list[int]] = {}

    def add(self, process: int, thread: str, span: tuple[str, str, int, int], **arguments: object) -> None:
        """Add an event, after the ones around it.

        `span` has category, name, start and duration in nanoseconds. Events that overlap are on further threads: on one
        they must be nested. The arguments are shown when the event is selected.
        """
        category, name, start_ns, duration_ns = span
        self._events.append(
            {
                "ph": "X",
                "name": name,
                "cat": category,
                "pid": process,
                "tid": self._thread(process, thread, start_ns, start_ns + duration_ns),
                "ts": start_ns / 1e3,
                "dur": duration_ns / 1e3,
                "args": arguments,
            }
        )
        self.end_ns = max(self.end_ns, start_ns + duration_ns)

    def _thread(self, process: int, name: str, start_ns: int, end_ns: int) -> int:
        """Return the number of the first thread with this name on which the event is nested."""
        copy = 1
        while True:
            label = name if copy == 1 else f"{name} ({copy})"
            number = self._threads.setdefault((process, label), len(self._threads) + 1)
            ends = self._open.setdefault((process, number), [])
            while ends and ends[-1] <= start_ns:
                ends.pop()
            if not ends or end_ns <= ends[-1]:
                ends.append(end_ns)
                return number
            copy += 1

    def events(self) -> list[Event]:
        """Return the names of processes and threads, and all events."""
        names = [
            _metadata("process_name", process, 0, name)
            for process, name in ((_CLIENT, "client"), (_SERVICE, "service"))
            if any(process == used for used, _ in self._threads)
        ]
        names += [_metadata("thread_name", process, thread, name) for (process, name), thread in self._threads.items()]
        return names + self._events


def _metadata(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _add_client(tracks: _Tracks, profile: ExecutionProfile, number: int, start_ns: int) -> None:
    """Add the call, its stages, and the transfers that its spans leave room for."""
    stages = profile.client_spans
    if not stages:
        return
    end = stages[-1].start_ns + stages[-1].duration_ns
    tracks.add(_CLIENT, "call", ("client", f"execute {number}", start_ns, end), transport=profile.transport)
    for stage in stages:
        category = "transfer" if stage.name in ("upload", "download") else "client"
        span = category, stage.name, start_ns + stage.start_ns, stage.duration_ns
        tracks.add(_CLIENT, "call", span, **({"transport": profile.transport} if category == "transfer" else {}))
    sent = next((stage.start_ns for stage in stages if stage.name == "send"), None)
    if sent is None or not profile.spans:
        return
    begin = profile.offset_ns + min(span.start_ns for span in profile.spans)
    note = "half of the wait that is not spent in the service"
    for name, at in (("request", sent), ("response", begin + _length(profile.spans))):
        span = "transfer", f"{name} by {profile.transport}", start_ns + at, max(0, begin - sent)
        tracks.add(_CLIENT, "transfer", span, estimate=note)


def _length(spans: Sequence[Span]) -> int:
    return max(s.start_ns + s.duration_ns for s in spans) - min(s.start_ns for s in spans)


def _add_service(
    tracks: _Tracks, spans: Sequence[Span], number: int, zero_ns: int, operations: Sequence[dict[str, object]]
) -> None:
    """Add the spans of one execution, whose time 0 is at `zero_ns` of the trace."""
    stages = [span for span in spans if span.kind == SpanKind.STAGE]
    if stages:
        start = min(span.start_ns for span in stages)
        tracks.add(_SERVICE, "call", ("service", f"execute {number}", zero_ns + start, _length(stages)))
    outer_first = sorted(spans, key=lambda s: (s.start_ns, -s.duration_ns, s.kind != SpanKind.PARTITION))
    for span in outer_first:
        name = f"partition of {len(span.operations)}" if span.kind == SpanKind.PARTITION else span.name
        arguments: dict[str, object] = {}
        if span.kind != SpanKind.STAGE:
            arguments = {"backend": span.backend, "subgraph": span.subgraph, "operations": list(span.operations)}
        if span.kind == SpanKind.OPERATION and span.subgraph == 0 and span.operations[0] < len(operations):
            arguments |= operations[span.operations[0]]
        event = _CATEGORIES.get(span.kind, "work"), name, zero_ns + span.start_ns, span.duration_ns
        tracks.add(_SERVICE, span.backend or "call", event, **arguments)


def _operation_arguments(model: Model) -> list[dict[str, object]]:
    """Return what is shown of each operation of the main subgraph."""
    operands = model.main.operands
    origins = model.operation_names or ("",) * len(model.main.operations)
    return [
        {
            "origin": origin,
            "inputs": [_describe(operands[i]) for i in operation.inputs if operands[i].dimensions],
            "outputs": [_describe(operands[i]) for i in operation.outputs],
        }
        for origin, operation in zip(origins, model.main.operations, strict=True)
    ]


def _describe(operand: Operand) -> str:
    return f"{type_name(operand.type)} {list(operand.dimensions)}"
