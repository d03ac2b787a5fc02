"""Traces of calls: the spans of each path, and their way to a collector."""

import itertools
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import nnhal
from nnhal.client.core.session import Transport
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_service.metrics.exposition import render
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from nnhal_service.tracing.tracer import ServiceTracer
from tests.concurrency import wait_until
from tests.driver.blocking_backend import TWICE

ONE = np.ones(2, np.float32)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(Settings(listen=("127.0.0.1:0",), backends=("CpuRef",))) as running:
        yield running


def trace_all(server: Server, *, ratio: float = 1.0, operations: bool = True) -> InMemorySpanExporter:
    """Have a server trace its calls into memory."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server.metrics.calls.tracer = ServiceTracer(provider, operations=operations)
    return exporter


def of_execution(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, ...]:
    """Return the spans of the traces of executions, without those of preparations."""
    spans = exporter.get_finished_spans()
    others = {span.context.trace_id for span in spans if span.name == "nnhal prepare"}
    return tuple(span for span in spans if span.context.trace_id not in others)


def names(spans: tuple[ReadableSpan, ...]) -> set[str]:
    return {span.name for span in spans}


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_trace_has_queue_transfer_partition_and_operation(server: Server, transport: Transport) -> None:
    exporter = trace_all(server)
    with nnhal.connect(server.addresses[0], transport=transport) as device:
        prepared = device.prepare(TWICE).result(60)
        outputs = prepared.execute([ONE, ONE])
    spans = of_execution(exporter)
    assert {"transfer", "queue", "execute", "partition"} < names(spans)
    assert any(name.startswith("operation ") for name in names(spans))
    (root,) = (span for span in spans if span.parent is None)
    assert root.name == ("nnhal unary" if transport == "grpc" else "nnhal data_socket")
    assert root.attributes is not None
    assert root.attributes["nnhal.status"] == "ok"
    by_id = {span.context.span_id: span for span in spans}
    for span in spans:
        assert span.context.trace_id == root.context.trace_id
        assert span.start_time is not None and span.end_time is not None
        if span.parent is not None:
            parent = by_id[span.parent.span_id]
            assert parent.start_time is not None and parent.end_time is not None
            assert parent.start_time <= span.start_time <= span.end_time <= parent.end_time, span.name
    (operation,) = (span for span in spans if span.name.startswith("operation "))
    assert operation.parent is not None
    assert by_id[operation.parent.span_id].name == "partition"
    assert outputs[0].tolist() == [2, 2]


@pytest.mark.parametrize("path", ["fenced", "reusable", "stream"])
def test_each_path_is_traced(server: Server, path: str) -> None:
    exporter = trace_all(server)
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        prepared = device.prepare(TWICE).result(60)
        if path == "fenced":
            prepared.execute_fenced([ONE, ONE]).result(60)
        elif path == "reusable":
            with prepared.reusable([ONE, ONE]) as execution:
                execution.run()
        else:
            with prepared.burst() as burst:
                burst.execute([ONE, ONE])
    assert {f"nnhal {path}", "queue", "partition"} < names(exporter.get_finished_spans())


@pytest.mark.parametrize("fails", [False, True])
def test_preparations_are_traced(server: Server, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    if fails:
        monkeypatch.setattr(CpuRef, "compile", fail)
    exporter = trace_all(server)
    with nnhal.connect(server.addresses[0]) as device:
        error = device.prepare(TWICE).exception(60)
        assert (error is not None) == fails
        assert wait_until(lambda: any(span.parent is None for span in exporter.get_finished_spans()), 60)
    spans = exporter.get_finished_spans()
    (root,) = (span for span in spans if span.parent is None)
    assert root.name == "nnhal prepare" and root.attributes is not None
    assert root.attributes["nnhal.status"] == ("general_failure" if fails else "ok")
    assert [span.name for span in spans if span.parent] == ["transfer", "queue", "prepare", "transfer"]
    times = [(span.start_time, span.end_time) for span in spans if span.parent]
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(times))  # type: ignore[operator]


def test_transfers_of_memory_are_traced(server: Server) -> None:
    exporter = trace_all(server)
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        memory = device._connection.create_memory(8)
        device._connection.write_memory(memory, np.zeros(8, np.uint8))
        device._connection.read_memory(memory)
    assert names(exporter.get_finished_spans()) == {"nnhal upload", "nnhal download"}


def test_clients_spans_are_for_clients_that_ask(server: Server) -> None:
    exporter = trace_all(server, operations=False)
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        prepared = device.prepare(TWICE).result(60)
        prepared.execute([ONE, ONE])
        assert not any(name.startswith("operation") for name in names(of_execution(exporter)))
        assert prepared.profile([ONE, ONE]).spans


def test_failed_call_is_an_error(server: Server) -> None:
    exporter = trace_all(server)
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        prepared = device.prepare(TWICE).result(60)
        with pytest.raises(nnhal.HalError):
            prepared.execute([ONE, ONE], deadline=1e-9)
    (root,) = (span for span in of_execution(exporter) if span.parent is None)
    assert not root.status.is_ok


def test_histogram_names_a_trace(server: Server) -> None:
    exporter = trace_all(server)
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        device.prepare(TWICE).result(60).execute([ONE, ONE])
    (root,) = (span for span in of_execution(exporter) if span.parent is None)
    text, _ = render(server.metrics.snapshot(), "application/openmetrics-text; version=1.0.0")
    assert f'trace_id="{root.context.trace_id:032x}"' in text.decode()


def test_nothing_is_traced_unless_wanted(server: Server) -> None:
    exporter = trace_all(server, ratio=0.0)
    with nnhal.connect(server.addresses[0], transport="grpc") as device:
        device.prepare(TWICE).result(60).execute([ONE, ONE])
    assert not exporter.get_finished_spans()


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Yield the address of a collector and the bodies that it receives."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{receiver.server_port}", bodies
    receiver.shutdown()
    thread.join()
    receiver.server_close()


def test_traces_reach_a_collector(collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, bodies = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    settings = Settings(listen=("127.0.0.1:0",), backends=("CpuRef",), tracing=True, trace_ratio=1.0)
    with Server(settings) as server, nnhal.connect(server.addresses[0]) as device:
        device.prepare(TWICE).result(60).execute([ONE, ONE])
    counts = server.metrics.snapshot().values["nnhal_spans"]
    assert counts["ended",] == counts["exported",] > 0
    requests = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    resources = [each for request in requests for each in request.resource_spans]
    spans = [span for each in resources for scope in each.scope_spans for span in scope.spans]
    assert {"transfer", "queue", "execute", "partition"} <= {span.name for span in spans}
    attributes = {pair.key: pair.value.string_value for pair in resources[0].resource.attributes}
    assert attributes["service.name"] == "nnhal"
    assert attributes["deployment.environment"] == "test"


@pytest.mark.parametrize("transport", ["auto", "grpc"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_client_passes_its_trace_on(server: Server, is_async: bool, transport: Transport) -> None:
    exporter = trace_all(server, ratio=0.0)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("application")
    with tracer.start_as_current_span("request") as span:
        if is_async:
            async with await nnhal.aio.connect(server.addresses[0], transport=transport) as device:
                prepared = await device.prepare(TWICE)
                await prepared.execute([ONE, ONE])
                await prepared.profile([ONE, ONE])
        else:
            with nnhal.connect(server.addresses[0], transport=transport) as device:
                model = device.prepare(TWICE).result(60)
                model.execute([ONE, ONE])
                model.profile([ONE, ONE])
    roots = [each for each in exporter.get_finished_spans() if each.name.startswith("nnhal")]
    assert [root.name for root in roots].count("nnhal prepare") == 1
    assert len(roots) == 3
    for root in roots:
        assert root.parent is not None
        assert root.parent.span_id == span.get_span_context().span_id
        assert root.context.trace_id == span.get_span_context().trace_id
