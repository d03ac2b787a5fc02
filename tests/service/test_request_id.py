"""Ids of requests: the same in the lines of the log, in the error of the client, and in its trace."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider

import nnhal
from nnhal.client.core.session import Transport
from nnhal.client.sync.preparation import device_version
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.execution.plan import Plan
from nnhal_service import log
from nnhal_service.metrics.exposition import render
from nnhal_service.request_id import current_id, request_id, trace_id
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.concurrency import wait_until
from tests.driver.blocking_backend import TWICE

ONE = np.ones(2, np.float32)
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Call:
    """Call with a trace context."""

    def __init__(self, trace_context: str = "") -> None:
        self._metadata = (("user-agent", "a"), ("traceparent", trace_context))

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata


def test_request_has_the_id_of_its_trace() -> None:
    assert request_id(Call(f"00-{TRACE}-b7ad6b7169203331-01")) == TRACE


@pytest.mark.parametrize(
    "context",
    ["", "x", TRACE, f"00-{TRACE}", f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-{TRACE.upper()}-{'1' * 16}-01"],
)
def test_request_without_a_valid_trace_has_an_id_of_its_own(context: str) -> None:
    call, other = Call(context), Call(context)
    assert trace_id(context) == ""
    assert len(request_id(call)) == 12
    assert request_id(call) == request_id(call) != request_id(other)


def test_other_threads_work_for_no_request() -> None:
    assert current_id() == ""


Lines: TypeAlias = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Yield a function that returns the lines of the log."""
    loggers = [logging.getLogger(name) for name in ("nnhal", "nnhal_driver")]
    before = [(logger.level, logger.handlers) for logger in loggers]
    stream = io.StringIO()
    log.configure("DEBUG", "json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers = handlers


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(Settings(listen=("127.0.0.1:0",), backends=("CpuRef",))) as running:
        yield running


def fail(*_: object, **__: object) -> None:
    logging.getLogger("nnhal_driver.test").warning("a backend fails")
    raise RuntimeError("broken")


@pytest.mark.parametrize("transport", ["auto", "grpc"])
@pytest.mark.parametrize("path", ["execute", "burst", "fenced"])
def test_error_and_lines_of_a_call_have_its_id(
    server: Server, lines: Lines, transport: Transport, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nnhal.connect(server.addresses[0], transport=transport) as device:
        prepared = device.prepare(TWICE).result(60)
        with prepared.burst() as burst:
            execute: Any = {"execute": prepared.execute, "burst": burst.execute, "fenced": prepared.execute_fenced}[
                path
            ]
            monkeypatch.setattr(Plan, "run", fail)
            with pytest.raises(nnhal.HalError) as caught:
                result = execute([ONE, ONE])
                result.result(60) if path == "fenced" else None
    (failed,) = (line for line in lines() if line.get("message") == "a backend fails")
    assert failed["request"]
    if path != "fenced":  # its fence has no error with an id
        assert caught.value.request == failed["request"]
        (event,) = (line for line in lines() if line.get("event") == "call-failed")
        assert (event["request"], event["level"]) == (failed["request"], "DEBUG")
        assert event["method"] in ("PreparedModel.ExecuteSynchronously", "Burst.Stream", "DataSocket.RUN")
    text, _ = render(server.metrics.snapshot(), "")
    assert path == "fenced" or f'nnhal_rpc_errors_total{{limit="",method="{event["method"]}"' in text.decode()


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_lines_and_errors_have_the_trace_of_the_client(
    server: Server, lines: Lines, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("application")
    with (
        nnhal.connect(server.addresses[0], transport=transport) as device,
        tracer.start_as_current_span("request") as span,
        pytest.raises(nnhal.HalError) as caught,
    ):
        prepared = device.prepare(TWICE).result(60)
        monkeypatch.setattr(Plan, "run", fail)
        prepared.execute([ONE, ONE])
    trace = f"{span.get_span_context().trace_id:032x}"
    assert caught.value.request == trace
    names = {line.get("event", line.get("message")) for line in lines() if line.get("request") == trace}
    assert names >= {"prepared", "a backend fails", "call-failed"}


def test_failed_preparation_has_its_id(server: Server, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuRef, "compile", fail)
    with nnhal.connect(server.addresses[0]) as device, pytest.raises(nnhal.HalError) as caught:
        device.prepare(TWICE).result(60)
    ids = {line.get("message", line.get("event")): line.get("request") for line in lines()}
    assert caught.value.request
    assert wait_until(lambda: any(line.get("event") == "prepared" for line in lines()), 60)
    ids = {line.get("message", line.get("event")): line.get("request") for line in lines()}
    assert ids["a backend fails"] == ids["prepared"] == caught.value.request


def test_text_of_an_internal_error_names_its_request(
    server: Server, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "get_version_string", fail)
    with nnhal.connect(server.addresses[0], transport="grpc") as device, pytest.raises(nnhal.HalError) as caught:
        device_version(device._connection, "nnhal")
    (logged,) = (line for line in lines() if line.get("message") == "internal error")
    assert caught.value.reason.endswith(f"(request {logged['request']})")
