"""Requests that are received early, and early ends of calls, with private parts of gRPC and without them."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from nnhal.client.core.rpc_errors import hal_error
from nnhal.enums import ErrorStatus
from nnhal.grpc_internals import server_calls
from nnhal.grpc_internals.server_calls import EarlyRequest, end_call
from nnhal.v1 import fence_pb2_grpc
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.thread_pool import ElasticThreadPool
from tests.concurrency import wait_until
from tests.service.grpc_support.fence_server import TIMEOUT_S, serving


class Servicer(fence_pb2_grpc.FenceServicer):
    """Has a method that returns its request."""

    @handler(raw=True)
    def Signal(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if request == b"end":
            end_call(context, grpc.StatusCode.DATA_LOSS.value[0], "the end")
        return request


@pytest.fixture(params=[True, False], ids=["early", "ordinary"])
def requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[EarlyRequest]:
    """Return the list of the requests that are received early. There are none without parts of gRPC."""
    created: list[EarlyRequest] = []
    if not request.param:
        monkeypatch.setattr(server_calls, "_RESPONDERS", ())
        monkeypatch.setattr(server_calls, "cygrpc", None)
    elif not server_calls._RESPONDERS:
        pytest.skip("private parts of gRPC are turned off")
    original = EarlyRequest.__init__

    def note(self: EarlyRequest, *args: Any) -> None:
        created.append(self)
        original(self, *args)

    monkeypatch.setattr(EarlyRequest, "__init__", note)
    return created


@pytest.fixture
def pool() -> ElasticThreadPool:
    return ElasticThreadPool(2, TIMEOUT_S, "calls")


@pytest.fixture
def channel(pool: ElasticThreadPool, requests: list[EarlyRequest]) -> Iterator[grpc.Channel]:
    with serving(Servicer(), {"": pool}, 0.2, capacity=8, check_s=0.1) as channel:  # type: ignore[abstract]
        yield channel


def call(channel: Any, message: bytes) -> bytes:
    response: bytes = channel.unary_unary("/nnhal.v1.Fence/Signal")(message, timeout=TIMEOUT_S)
    return response


def start(channel: Any, messages: Iterator[bytes]) -> Any:
    return channel.stream_unary("/nnhal.v1.Fence/Signal").future(messages)


def all_idle(pool: ElasticThreadPool) -> bool:
    return len(pool._idle) == len(pool._alive)


def silent(ended: threading.Event) -> Iterator[bytes]:
    """Send no message until an event is set."""
    ended.wait(TIMEOUT_S)
    yield from ()


def test_calls_one_after_another(channel: grpc.Channel, pool: ElasticThreadPool, requests: list[EarlyRequest]) -> None:
    for number in range(20):
        assert call(channel, b"%d" % number) == b"%d" % number
        assert wait_until(lambda: all_idle(pool))
    assert len(requests) in (0, 19)  # the first call found no idle thread


@pytest.mark.parametrize("message", [b"", bytes(1 << 20)], ids=len)
def test_sizes(channel: grpc.Channel, message: bytes) -> None:
    for _ in range(3):
        assert call(channel, message) == message


def test_concurrent_calls(channel: grpc.Channel) -> None:
    futures = [start(channel, iter([b"%d" % number])) for number in range(100)]
    assert [future.result(TIMEOUT_S) for future in futures] == [b"%d" % number for number in range(100)]


def test_call_that_is_ended_early(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, b"end")
    assert isinstance(caught.value, grpc.Call)
    is_plain = server_calls.cygrpc is None
    assert caught.value.code() is (grpc.StatusCode.CANCELLED if is_plain else grpc.StatusCode.DATA_LOSS)


def test_call_without_a_request(channel: grpc.Channel, pool: ElasticThreadPool) -> None:
    for _ in range(3):
        with pytest.raises(grpc.RpcError) as caught:
            start(channel, iter(())).result(TIMEOUT_S)
        error = hal_error(caught.value)
        assert error.status == ErrorStatus.INVALID_ARGUMENT and error.reason == "the call has no request"
        assert wait_until(lambda: all_idle(pool))


@pytest.mark.parametrize("how", ["cancelled", "stalled", "connection lost"])
def test_thread_of_a_silent_client_is_free_again(
    channel: Any, pool: ElasticThreadPool, requests: list[EarlyRequest], how: str
) -> None:
    ended = threading.Event()
    assert call(channel, b"a") == b"a"
    assert wait_until(lambda: all_idle(pool))
    other = grpc.insecure_channel(channel._channel.target().decode())
    silent_call = start(other, silent(ended))
    waiting = start(other, silent(ended))
    assert wait_until(lambda: len(pool._alive) == 2 and not pool._idle)
    if how == "cancelled":
        silent_call.cancel()
        waiting.cancel()
    elif how == "connection lost":
        other.close()
    assert call(channel, b"b") == b"b"
    assert wait_until(lambda: all_idle(pool))
    ended.set()
    other.close()
