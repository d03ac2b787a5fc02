"""Unary calls of encoded messages: with less work, and as gRPC makes them."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import grpc
import pytest

from nnhal.client.security.token import AuthorizedChannel
from nnhal.client.sync.grpc_calls import encoded_method
from nnhal.grpc_internals import unary_call
from nnhal.grpc_internals.unary_call import DirectUnary, direct_unary
from tests.nnhal.client.message_server import TIMEOUT_S, connected, serving

PATH = "/test.Messages/Run"
LARGE = bytes(8 << 20)
HANGING = threading.Event()
"""Set while a call hangs."""

Method: TypeAlias = "Callable[..., bytes]"

direct = pytest.mark.skipif(not unary_call._PARTS, reason="private parts of gRPC are turned off")


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
    return channel.unary_unary(PATH)


@pytest.fixture(params=[pytest.param("direct", marks=direct), "ordinary"])
def method(request: pytest.FixtureRequest, channel: grpc.Channel) -> Method:
    ordinary: Method = method_of(channel)
    return DirectUnary(ordinary) if request.param == "direct" else ordinary


def failure_of(method: Method, message: bytes) -> grpc.Call:
    with pytest.raises(grpc.RpcError) as caught:
        method(message)
    assert isinstance(caught.value, grpc.Call)
    return caught.value


@direct
def test_the_installed_grpc_has_what_direct_methods_need(channel: grpc.Channel) -> None:
    assert isinstance(direct_unary(method_of(channel)), DirectUnary)


def test_other_channels_have_ordinary_methods(channel: grpc.Channel) -> None:
    class Interceptor(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            return continuation(details, request)

    method = direct_unary(method_of(grpc.intercept_channel(channel, Interceptor())))
    assert not isinstance(method, DirectUnary)
    assert method(b"a") == b"a"


def test_a_release_of_grpc_without_its_parts(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unary_call, "_PARTS", {})
    method = method_of(channel)
    assert direct_unary(method) is method


@pytest.mark.parametrize("message", [b"", b"a", LARGE], ids=len)
def test_response(method: Method, message: bytes) -> None:
    assert method(message) == message


def test_errors_have_a_status_text_and_trailing_metadata(method: Method) -> None:
    error = failure_of(method, b"fail")
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details() == "it is not here"
    assert dict(error.trailing_metadata() or ())["about-bin"] == b"\0\1"
    assert method(b"a") == b"a"


def test_nothing_listens() -> None:
    with grpc.insecure_channel("unix:/nonexistent/socket") as channel:
        assert failure_of(direct_unary(method_of(channel)), b"a").code() is grpc.StatusCode.UNAVAILABLE


def test_a_thread_that_waits_learns_that_the_channel_is_closed(target: str) -> None:
    channel = grpc.insecure_channel(target)
    method = direct_unary(method_of(channel))
    HANGING.clear()
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(failure_of, method, b"hang")
        assert HANGING.wait(TIMEOUT_S)
        channel.close()
        assert failed.result(TIMEOUT_S).code() is grpc.StatusCode.CANCELLED


def test_a_closed_channel(target: str) -> None:
    channel = grpc.insecure_channel(target)
    method = direct_unary(method_of(channel))
    channel.close()
    with pytest.raises(ValueError, match="closed channel"):
        method(b"a")


def test_metadata_and_tokens(channel: grpc.Channel) -> None:
    tokens = iter("ab")
    authorized = AuthorizedChannel(channel, lambda: (("authorization", f"Bearer {next(tokens, 'c')}"),))
    method: Any = encoded_method(authorized, PATH)
    assert isinstance(method.method, DirectUnary if unary_call._PARTS else object)
    keys = method(b"metadata", metadata=(("traceparent", "b"),))
    assert b"'authorization'" in keys and b"'traceparent'" in keys
    assert b"'authorization'" in method(b"metadata")


def test_concurrent_calls(method: Method) -> None:
    messages = [b"%d " % index * (index * 997 % 5000) for index in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(method, messages)) == messages
