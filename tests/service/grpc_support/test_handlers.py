"""Registered handlers: invalid requests, missing methods, raw methods and thread pools."""

import re
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from nnhal.client.core.rpc_errors import hal_error
from nnhal.enums import ErrorKind, ErrorStatus
from nnhal.errors import HalError
from nnhal.v1 import fence_pb2, fence_pb2_grpc
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.thread_pool import ElasticThreadPool
from tests.service.grpc_support.fence_server import TIMEOUT_S, serving


class Servicer(fence_pb2_grpc.FenceServicer):
    """Implements two methods of Fence."""

    @handler(pool="special")
    def Create(
        self, request: fence_pb2.CreateFenceRequest, context: grpc.ServicerContext
    ) -> fence_pb2.CreateFenceResponse:
        return fence_pb2.CreateFenceResponse(fence=threading.current_thread().name.encode())

    @handler(raw=True)
    def Signal(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        raise ValueError(request.decode())


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    pools = {"": ElasticThreadPool(4, 1, "calls"), "special": ElasticThreadPool(1, 1, "special")}
    with serving(Servicer(), pools, TIMEOUT_S, capacity=1, check_s=1) as channel:  # type: ignore[abstract]
        yield channel


def error_of(channel: grpc.Channel, method: str, request: bytes = b"") -> HalError:
    call: Callable[..., bytes] = channel.unary_unary(f"/nnhal.v1.Fence/{method}")
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=10)
    return hal_error(caught.value)


def test_method_runs_on_its_pool(channel: grpc.Channel) -> None:
    response = fence_pb2_grpc.FenceStub(channel).Create(fence_pb2.CreateFenceRequest(), timeout=10)
    assert response.fence == b"special"


def test_invalid_request(channel: grpc.Channel) -> None:
    error = error_of(channel, "Create", b"\xff\xff")
    assert error.status == ErrorStatus.INVALID_ARGUMENT and "cannot be decoded" in error.reason


def test_missing_methods(channel: grpc.Channel) -> None:
    for method in ("GetExecutionInfo", "Wait"):
        error = error_of(channel, method)
        assert error.kind == ErrorKind.UNIMPLEMENTED
        assert error.reason == f"nnhal.v1.Fence.{method} is not implemented by this release"


def test_raw_method_and_unexpected_exception(channel: grpc.Channel) -> None:
    error = error_of(channel, "Signal", b"text")
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert re.fullmatch(r"internal error: ValueError: text \(request [0-9a-f]{12}\)", error.reason)
    assert error.reason.endswith(f"(request {error.request})")
