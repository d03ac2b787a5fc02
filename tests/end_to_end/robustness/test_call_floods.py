"""Floods of calls: other sessions, health checks and reflection do not wait behind them."""

import os
import queue
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import nnhal
from nnhal.types import ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import prepared_model_pb2
from nnhal_service.server import CONNECTION_CALLS
from nnhal_service.serving.thread_pools import HEALTH_THREADS
from tests.concurrency import wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.robustness.unreading_client import UnreadingClient
from tests.end_to_end.support.raw_client import error_detail, open_raw_session, prepare_request
from tests.end_to_end.support.service_process import Service, start_service, stop_running, stop_service
from tests.end_to_end.support.valid_requests import inline_request, loop

THREADS, LIMIT = 16, 12
TIMEOUT_S = 60.0

_X = tensor(T.TENSOR_FLOAT32, (2,))
_ADD = model_of(Op.ADD, [(_X, 0), (_X, 0), int32(0)], [_X], constants=False)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = start_service(tmp_path, NNHAL_THREADS=str(THREADS))
    try:
        yield running
    finally:
        assert stop_service(running) == 0


def check_health(target: str) -> None:
    """Check the health of the service over a connection of its own."""
    with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_calls_of_one_session_leave_threads_to_others(service: Service) -> None:
    """Executions that wait do not occupy all threads. Those above the limit are rejected, and name it."""
    with open_raw_session(service.target) as raw:
        *_, event = raw.device.PrepareModel(prepare_request(raw, loop()))
        request = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=raw.session,
            prepared_model=event.notify.prepared_model,
            request=inline_request(),
            loop_timeout_duration_ns=15 * 10**9,
        )
        ended: queue.SimpleQueue[grpc.Future[Any]] = queue.SimpleQueue()
        calls = [raw.prepared_model.ExecuteSynchronously.future(request) for _ in range(2 * THREADS)]
        for call in calls:
            call.add_done_callback(ended.put)
        for _ in range(2 * THREADS - LIMIT):
            error = ended.get(timeout=TIMEOUT_S).exception()
            assert isinstance(error, grpc.RpcError)
            detail = error_detail(error)
            assert (detail.status, detail.limit) == (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "session_calls")
        check_health(service.target)
        with nnhal.connect(service.target, timeout=TIMEOUT_S) as device, device.prepare(_ADD).result(TIMEOUT_S):
            pass  # an execution would wait for a slot: the loops run in both
        for call in calls:
            call.cancel()
    with nnhal.connect(service.target, timeout=TIMEOUT_S) as device:
        x = np.ones(2, np.float32)
        result = device.prepare(_ADD).result(TIMEOUT_S).execute([x, x], deadline=TIMEOUT_S)
    np.testing.assert_array_equal(result[0], x + x)


def test_flood_of_one_connection_has_no_call_rejected(service: Service) -> None:
    """Although gRPC receives the calls much faster than Python takes them."""
    with UnreadingClient(service.target) as client:
        assert wait_until(lambda: client.max_streams == CONNECTION_CALLS, TIMEOUT_S)
        stop_running(service.pid)
        try:
            for _ in range(CONNECTION_CALLS):
                client.call("grpc.health.v1.Health/Check", b"")
        finally:
            os.kill(service.pid, signal.SIGCONT)
        check_health(service.target)
        assert not client.rejected and not client.cancelled


def silent_requests(over: threading.Event) -> Iterator[bytes]:
    """Yield no request, and end when the event is set."""
    over.wait()
    yield from ()


@pytest.mark.parametrize("method", ["nnhal.v1.Session/Close", "grpc.health.v1.Health/Check"])
def test_silent_calls_delay_neither_health_nor_calls(service: Service, method: str) -> None:
    """More calls whose request never comes than the service has threads: those above a share are cancelled."""
    over = threading.Event()
    with grpc.insecure_channel(service.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        begin: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(f"/{method}")
        calls = [begin.future(silent_requests(over)) for _ in range(max(2 * THREADS, HEALTH_THREADS + 8))]
        check_health(service.target)
        with nnhal.connect(service.target, timeout=TIMEOUT_S) as device:
            device.prepare(_ADD).result(TIMEOUT_S)
        check_health(service.target)
        assert not all(call.done() for call in calls)
        over.set()
        for call in calls:
            call.cancel()


def test_call_without_a_request(service: Service) -> None:
    """A client that ends its call without a request gets an error."""
    with grpc.insecure_channel(service.target) as channel:
        call: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary("/nnhal.v1.Session/Close")
        with pytest.raises(grpc.RpcError) as caught:
            call(iter([]), timeout=TIMEOUT_S)
    assert error_detail(caught.value).reason == "the call has no request"


def test_open_reflection_streams_delay_neither_health_nor_calls(service: Service) -> None:
    over = threading.Event()

    def one() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        over.wait()

    with grpc.insecure_channel(service.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        streams = [stub.ServerReflectionInfo(one()) for _ in range(2 * THREADS)]
        assert next(stub.ServerReflectionInfo(one(), timeout=TIMEOUT_S)).list_services_response.service
        check_health(service.target)
        with nnhal.connect(service.target, timeout=TIMEOUT_S) as device:
            device.prepare(_ADD).result(TIMEOUT_S)
        over.set()
        for stream in streams:
            stream.cancel()
