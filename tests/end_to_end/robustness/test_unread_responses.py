"""Clients that read no responses: they take bounded memory, and leave threads and health checks to others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import memory_pb2, session_pb2, types_pb2
from tests.concurrency import wait_until
from tests.end_to_end.robustness.hostile_models import prepare_large_output
from tests.end_to_end.robustness.unreading_client import UnreadingClient
from tests.end_to_end.support.raw_client import (
    RawSession,
    error_detail,
    open_raw_session,
)
from tests.end_to_end.support.service_process import Service, start_service, stop_service

TIMEOUT_S = 60
THREADS = 16
ELEMENTS = 400_000
RESPONSES = 40
SHORT = "--transfer-idle-s=1"


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Service]:
    """Run a service with few threads and little memory for clients."""
    service = start_service(folder, f"--threads={THREADS}", f"--limit=service_memory_bytes={64 * 2**20}", *options)
    try:
        yield service
    finally:
        assert stop_service(service) == 0


def is_executed(raw: RawSession, request: bytes) -> bool:
    """Execute a request, and return whether there was memory for its response."""
    execute: Callable[..., bytes] = raw.channel.unary_unary("/nnhal.v1.PreparedModel/ExecuteSynchronously")
    try:
        response = execute(request, timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        detail = error_detail(error)
        assert (detail.status, detail.limit) == (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "service_memory_bytes")
        assert "the response needs" in detail.reason
        return False
    assert types_pb2.ExecutionResult.FromString(response).output_sufficient_size
    return True


def test_too_many_responses(tmp_path: Path) -> None:
    with running(tmp_path) as service, open_raw_session(service.target) as raw:
        request = prepare_large_output(raw)
        with UnreadingClient(service.target) as unreading:
            for _ in range(RESPONSES):
                unreading.call("PreparedModel/ExecuteSynchronously", request)
            assert wait_until(lambda: bool(unreading.rejected), TIMEOUT_S)
            with open_raw_session(service.target) as other:
                assert is_executed(other, prepare_large_output(other))
            assert not unreading.cancelled
        assert wait_until(lambda: is_executed(raw, request), TIMEOUT_S)


def test_stalled_responses_are_cancelled(tmp_path: Path) -> None:
    with (
        running(tmp_path, SHORT) as service,
        open_raw_session(service.target) as raw,
        UnreadingClient(service.target) as unreading,
    ):
        request = prepare_large_output(raw)
        streams = {unreading.call("PreparedModel/ExecuteSynchronously", request) for _ in range(4)}
        assert wait_until(lambda: unreading.cancelled == streams, TIMEOUT_S)
        assert is_executed(raw, request)
        assert service.logged("responses-stalled")


def test_unread_streams_leave_threads(tmp_path: Path) -> None:
    with (
        running(tmp_path, SHORT) as service,
        open_raw_session(service.target) as raw,
        UnreadingClient(service.target) as unreading,
    ):
        request = session_pb2.OpenRequest(client_name="test").SerializeToString()
        streams = {unreading.call("Session/Open", request) for _ in range(THREADS)}
        assert wait_until(lambda: service.log.read_text().count("session-opened") > THREADS, TIMEOUT_S)
        raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=1), timeout=TIMEOUT_S)
        assert wait_until(lambda: unreading.cancelled == streams, TIMEOUT_S)


def test_unread_health_does_not_delay_checks(tmp_path: Path) -> None:
    with running(tmp_path) as service, UnreadingClient(service.target) as unreading:
        for _ in range(40):  # more than there are threads for health checks
            unreading.call("grpc.health.v1.Health/Watch", health_pb2.HealthCheckRequest().SerializeToString())
        with grpc.insecure_channel(service.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            checked = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert checked.status == health_pb2.HealthCheckResponse.SERVING
        assert wait_until(lambda: unreading.max_streams > 0, TIMEOUT_S)
