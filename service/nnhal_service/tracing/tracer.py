"""Traces of calls: their spans go to a collector by OTLP over HTTP.

The environment variables of OpenTelemetry (OTEL_*) choose the collector, the resource and the sampler.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Span as OpenTelemetrySpan
from opentelemetry.trace import SpanKind as Side
from opentelemetry.trace import Status, StatusCode, Tracer, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nnhal.types import Span as DriverSpan
from nnhal.types import SpanKind
from nnhal.version import __version__
from nnhal_driver.execution.profiling import SpanRecorder
from nnhal_service.metrics import catalog
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.metrics.series import OK

_SAMPLER = "OTEL_TRACES_SAMPLER"
_PARENT, _STATE = "traceparent", "tracestate"
_FLUSH_S = 3.0
"""Seconds that the last traces may take to reach the collector when the service stops."""
_DECODE, _EXECUTE = "decode", "execute"
"""Names of stages of the driver."""
_DIRECTION = "nnhal.direction"

Count: TypeAlias = Callable[..., None]

_Attributes: TypeAlias = Mapping[str, str | int]


class ServiceTracer:
    """Starts the traces of calls. Close it at the end.

    Args:
        operations: whether traces have a span for each operation, for which some backends run a model more slowly.
    """

    def __init__(self, provider: TracerProvider, *, operations: bool) -> None:
        self._provider = provider
        self._operations = operations
        self._tracer = provider.get_tracer("nnhal", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, call: MeteredCall, labels: tuple[str, ...]) -> None:
        """See `nnhal_service.metrics.calls.Tracer`."""
        metadata = call.context.invocation_metadata() if call.context is not None else None
        carrier = {key: str(value) for key, value in metadata or () if key in (_PARENT, _STATE)}
        epoch_ns = time.time_ns() - time.perf_counter_ns()
        span = self._tracer.start_span(
            f"nnhal {call.path}",
            self._propagator.extract(carrier),
            Side.SERVER,
            {f"nnhal.{name}": label for name, label in zip(catalog.CALL_LABELS, labels, strict=True)},
            start_time=epoch_ns + call.received_ns,
        )
        if isinstance(span, Span):  # it is sampled
            call.spans = SpanRecorder(operations=self._operations)
            call.trace = _SampledCall(self._tracer, span, call.received_ns, epoch_ns)

    def close(self) -> None:
        """Export what has been recorded, for some seconds at most."""
        thread = threading.Thread(target=self._provider.shutdown, name="nnhal-traces", daemon=True)
        thread.start()
        thread.join(_FLUSH_S)


class _SampledCall:
    """Trace of one call.

    Attributes:
        id: its id, in hexadecimal.
    """

    def __init__(self, tracer: Tracer, span: Span, started_ns: int, epoch_ns: int) -> None:
        self.id = format_trace_id(span.get_span_context().trace_id)
        self._tracer = tracer
        self._span = span
        self._started_ns = started_ns
        self._epoch_ns = epoch_ns
        self._context = set_span_in_context(span)

    def end(self, call: MeteredCall) -> None:
        """End the trace."""
        now_ns = time.perf_counter_ns()
        assert call.spans is not None, "set with the trace"  # without stages, if the call executes nothing
        self._add_all(call.spans.all(), call.spans.start_ns, now_ns)
        self._span.set_attributes({"nnhal.status": call.status, "nnhal.dropped_spans": call.spans.dropped})
        if call.status != OK:
            self._span.set_status(Status(StatusCode.ERROR, call.status))
        self._span.end(self._epoch_ns + now_ns)

    def _add_all(self, spans: Sequence[DriverSpan], base_ns: int, now_ns: int) -> None:
        """Add the spans of the driver, counted from `base_ns`: stages, in the last one partitions, then operations."""
        stages = [span for span in spans if span.kind == SpanKind.STAGE]
        ended_ns, inner = self._started_ns, self._context
        for span in stages:
            added = self._add(span, base_ns, self._context)
            ended_ns = base_ns + span.start_ns + span.duration_ns
            if span.name == _EXECUTE:
                inner = set_span_in_context(added)
        if stages:  # else it failed before it got a slot
            self._create("transfer", {_DIRECTION: "out"}, ended_ns, now_ns, self._context)
        enclosing: list[tuple[int, Context]] = []
        others = (span for span in spans if span.kind != SpanKind.STAGE)
        for span in sorted(others, key=lambda span: (span.start_ns, -span.duration_ns)):
            end_ns = span.start_ns + span.duration_ns
            while enclosing and enclosing[-1][0] < end_ns:
                enclosing.pop()
            added = self._add(span, base_ns, enclosing[-1][1] if enclosing else inner)
            enclosing.append((end_ns, set_span_in_context(added)))

    def _add(self, span: DriverSpan, base_ns: int, parent: Context) -> OpenTelemetrySpan:
        name, attributes = _describe(span)
        start_ns = base_ns + span.start_ns
        return self._create(name, attributes, start_ns, start_ns + span.duration_ns, parent)

    def _create(
        self, name: str, attributes: _Attributes, start_ns: int, end_ns: int, parent: Context
    ) -> OpenTelemetrySpan:
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=self._epoch_ns + start_ns)
        span.end(self._epoch_ns + end_ns)
        return span


def _describe(span: DriverSpan) -> tuple[str, _Attributes]:
    """Return the name and the attributes of a span of the driver."""
    if span.kind == SpanKind.STAGE:
        return ("transfer", {_DIRECTION: "in"}) if span.name == _DECODE else (span.name, {})
    where: dict[str, str | int] = {"nnhal.backend": span.backend, "nnhal.subgraph": span.subgraph}
    if span.kind == SpanKind.PARTITION:
        return "partition", where | {"nnhal.operations": len(span.operations)}
    if span.kind == SpanKind.OPERATION:
        return f"operation {span.name}", where | {"nnhal.operation": span.operations[0]}
    return f"work {span.name}", where


class _CountingExporter(OTLPSpanExporter):
    """Exporter that counts what a collector has accepted."""

    def __init__(self, count: Count) -> None:
        super().__init__()
        self._count = count

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans."""
        result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self._count(catalog.SPANS, "exported", amount=len(spans))
        return result


class _CountingProcessor(BatchSpanProcessor):
    """Processor that counts the spans that it gets. It drops some of them if the collector is slow."""

    def __init__(self, exporter: SpanExporter, count: Count) -> None:
        super().__init__(exporter)
        self._count = count

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that has ended."""
        if span.context.trace_flags.sampled:
            self._count(catalog.SPANS, "ended")
        super().on_end(span)


def start_tracer(instance: str, ratio: float, count: Count, *, operations: bool) -> ServiceTracer:
    """Return a tracer that exports its spans, for the process with a name: see `Settings` for the other arguments.

    `count` counts events, by their metric and labels.
    """
    # variables of OpenTelemetry come first
    sampler: Sampler | None = None
    if _SAMPLER not in os.environ:
        sampler = ParentBased(TraceIdRatioBased(ratio))
    attributes = {"service.name": "nnhal", "service.version": __version__, "service.instance.id": instance}
    resource = Resource(attributes).merge(OTELResourceDetector().detect())
    provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(_CountingProcessor(_CountingExporter(count), count))
    return ServiceTracer(provider, operations=operations)
