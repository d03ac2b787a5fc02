"""Floods: many calls, streams or connections at once, which say nothing or come too fast."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from nnhal.v1 import prepared_model_pb2, session_pb2, session_pb2_grpc
from tests.benchmark.attacks.attack import attack, count_codes, end_calls, own_channel, wait_until
from tests.benchmark.attacks.http2 import Http2Connection
from tests.end_to_end.support.raw_client import open_raw_session, prepare_request
from tests.end_to_end.support.valid_requests import inline_request, loop

_CALLS = 600
"""More than the service has threads for calls."""
_CONNECTIONS = 800
_SESSIONS = 1100
_PINGS = 100
"""Number of pings that are sent at once."""


@attack("sessions")
def sessions(target: str, end: float) -> str:
    """Open more sessions than the service allows."""
    with own_channel(target) as channel:
        stub = session_pb2_grpc.SessionStub(channel)
        streams: list[grpc.Call] = [stub.Open(session_pb2.OpenRequest(client_name="flood")) for _ in range(_SESSIONS)]
        wait_until(end)
        return f"{_SESSIONS} sessions, of which ended: {sum(not stream.is_active() for stream in streams)}"


@attack("silent calls")
def silent_calls(target: str, end: float) -> str:
    """Begin unary calls whose request never comes."""
    return _call_silently(target, end, "/nnhal.v1.Session/Close")


@attack("silent health checks")
def silent_health_checks(target: str, end: float) -> str:
    """Begin health checks whose request never comes."""
    return _call_silently(target, end, "/grpc.health.v1.Health/Check")


def _call_silently(target: str, end: float, method: str) -> str:
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait()
        yield from ()

    with own_channel(target) as channel:
        begin: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(method)
        calls = [begin.future(nothing()) for _ in range(_CALLS)]
        wait_until(end)
        result = count_codes(calls)
        end_calls(calls, over)
    return result


@attack("reflection streams")
def reflection_streams(target: str, end: float) -> str:
    """Open streams of server reflection, and leave them open."""
    over = threading.Event()

    def one() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        over.wait()

    with own_channel(target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        streams = [stub.ServerReflectionInfo(one()) for _ in range(_CALLS)]
        wait_until(end)
        end_calls(streams, over)
    return f"{_CALLS} streams"


@attack("executions at once")
def executions_at_once(target: str, end: float) -> str:
    """Execute a model that takes two seconds, on one session, more often at once than the service has threads."""
    with own_channel(target), open_raw_session(target) as raw:
        *_, event = raw.device.PrepareModel(prepare_request(raw, loop()))
        request = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=raw.session, prepared_model=event.notify.prepared_model, request=inline_request()
        )
        calls = [raw.prepared_model.ExecuteSynchronously.future(request) for _ in range(_CALLS)]
        wait_until(end)
        result = count_codes(calls)
        for call in calls:
            call.cancel()
    return result


@attack("health checks")
def health_checks(target: str, end: float) -> str:
    """Check the health of the service, 200 calls at a time."""
    count = 0
    with own_channel(target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while time.monotonic() < end:
            for call in [stub.Check.future(health_pb2.HealthCheckRequest(), timeout=20) for _ in range(200)]:
                with contextlib.suppress(grpc.RpcError):
                    call.result()
                    count += 1
    return f"{count} calls"


@attack("rapid reset")
def rapid_reset(target: str, end: float) -> str:
    """Send whole calls and reset their streams at once."""
    count = 0
    with contextlib.closing(Http2Connection(target)) as connection:
        for stream in itertools.count(1, 2):
            if time.monotonic() >= end or not connection.send_reset_call("/grpc.health.v1.Health/Check", stream):
                break
            count += 1
    return f"{count} streams"


@attack("pings")
def pings(target: str, end: float) -> str:
    """Send pings of HTTP/2 without a pause, and connect again when the service ends the connection."""
    count = connections = 0
    while time.monotonic() < end:
        connections += 1
        # the service may end a connection at any time
        with contextlib.suppress(OSError), contextlib.closing(Http2Connection(target)) as connection:
            while time.monotonic() < end and connection.send_pings(_PINGS):
                count += _PINGS
    return f"{count} pings on {connections} connections"


@attack("idle connections")
def idle_connections(target: str, end: float) -> str:
    """Open connections that send no byte."""
    with contextlib.ExitStack() as stack:
        opened: list[Http2Connection] = []
        with contextlib.suppress(OSError):  # the attacker is out of descriptors
            while len(opened) < _CONNECTIONS:
                opened.append(stack.enter_context(contextlib.closing(Http2Connection(target, greet=False))))
        wait_until(end)
    return f"{len(opened)} connections"
