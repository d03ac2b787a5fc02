"""Unary calls of encoded messages: with less work, and as gRPC makes them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from nnhal.client import unary_method as module
from nnhal.client.security.token import AuthorizedChannel
from nnhal.client.unary_method import DirectMethod, UnaryMethod, unary_method
from tests.nnhal.client.message_server import TIMEOUT_S, connected, serving

LARGE = bytes(8 << 20)
HANGING = threading.Event()
"""Set while a call hangs."""


def respond(message: bytes, context: grpc.ServicerContext) -> bytes:
    """Return the message, unless it asks for something else."""
    if message == b"metadata":
        return repr(sorted(key for key, _ in context.invocation_metadata())).encode()
    if message == b"fail":
        context.set_trailing_metadata((("about-bin", b"\0\1"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "it is not here")
    if message == b"hang":
        ended = threading.Event()
        context.add_callback(ended.set)
        HANGING.set()
        ended.wait(TIMEOUT_S)
    return message


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(respond)
    with serving("Run", handler) as target:
        yield target


@pytest.fixture
def channel(target: str) -> Iterator[grpc.Channel]:
    with connected(target) as channel:
        yield channel


def method_of(channel: Any) -> Any:
    return channel.unary_unary("/test.Messages/Run")


@pytest.fixture(params=["direct", "ordinary"])
def method(request: pytest.FixtureRequest, channel: grpc.Channel) -> UnaryMethod:
    ordinary: UnaryMethod = method_of(channel)
    return DirectMethod(ordinary) if request.param == "direct" else ordinary


def failure_of(method: UnaryMethod, message: bytes) -> grpc.Call:
    with pytest.raises(grpc.RpcError) as caught:
        method(message)
    assert isinstance(caught.value, grpc.Call)
    return caught.value


def test_the_installed_grpc_has_what_direct_methods_need(channel: grpc.Channel) -> None:
    assert isinstance(unary_method(method_of(channel)), DirectMethod)


def test_other_channels_have_ordinary_methods(channel: grpc.Channel) -> None:
    class Interceptor(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            return continuation(details, request)

    method = unary_method(method_of(grpc.intercept_channel(channel, Interceptor())))
    assert not isinstance(method, DirectMethod)
    assert method(b"a") == b"a"


def test_a_release_of_grpc_without_its_parts(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cygrpc", None)
    method = method_of(channel)
    assert unary_method(method) is method


@pytest.mark.parametrize("message", [b"", b"a", LARGE], ids=len)
def test_response(method: UnaryMethod, message: bytes) -> None:
    assert method(message) == message


def test_errors_have_a_status_text_and_trailing_metadata(method: UnaryMethod) -> None:
    error = failure_of(method, b"fail")
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details() == "it is not here"
    assert dict(error.trailing_metadata() or ())["about-bin"] == b"\0\1"
    assert method(b"a") == b"a"


def test_nothing_listens() -> None:
    with grpc.insecure_channel("unix:/nonexistent/socket") as channel:
        assert failure_of(unary_method(method_of(channel)), b"a").code() is grpc.StatusCode.UNAVAILABLE


def test_a_thread_that_waits_learns_that_the_channel_is_closed(target: str) -> None:
    channel = grpc.insecure_channel(target)
    method = unary_method(method_of(channel))
    HANGING.clear()
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(failure_of, method, b"hang")
        assert HANGING.wait(TIMEOUT_S)
        channel.close()
        assert failed.result(TIMEOUT_S).code() is grpc.StatusCode.CANCELLED


def test_a_closed_channel(target: str) -> None:
    channel = grpc.insecure_channel(target)
    method = unary_method(method_of(channel))
    channel.close()
    with pytest.raises(ValueError, match="closed channel"):
        method(b"a")


def test_metadata_and_tokens(channel: grpc.Channel) -> None:
    tokens = iter("ab")
    authorized = AuthorizedChannel(channel, lambda: (("authorization", f"Bearer {next(tokens, 'c')}"),))
    method = unary_method(method_of(authorized))
    assert isinstance(method, DirectMethod)
    keys = method(b"metadata", metadata=(("traceparent", "b"),))
    assert b"'authorization'" in keys and b"'traceparent'" in keys
    assert b"'authorization'" in method(b"metadata")


def test_concurrent_calls(method: UnaryMethod) -> None:
    messages = [b"%d " % index * (index * 997 % 5000) for index in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(method, messages)) == messages
