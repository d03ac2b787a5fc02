"""Streams of messages: both kinds, against a server of their own."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import grpc
import pytest

from nnhal.client.message_stream import MessageStream, QueuedStream, open_stream
from nnhal.client.security.token import AuthorizedChannel
from nnhal.grpc_internals import direct_stream
from nnhal.grpc_internals.direct_stream import DirectStream, free_cancelled_streams
from tests.nnhal.client.message_server import TIMEOUT_S, connected, serving

LARGE = bytes(1 << 20)
ENDINGS = {b"end": None, b"fail": grpc.StatusCode.DATA_LOSS, b"details": grpc.StatusCode.NOT_FOUND}

direct = pytest.mark.skipif(not direct_stream._PARTS, reason="private parts of gRPC are turned off")

Open: TypeAlias = "Callable[..., MessageStream]"


def respond(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """Return each message, until one asks for something else."""
    for message in requests:
        if message == b"metadata":
            yield repr(sorted(key for key, _ in context.invocation_metadata())).encode()
        elif message == b"details":
            context.set_trailing_metadata((("about-bin", b"\0\1"),))
            context.abort(grpc.StatusCode.NOT_FOUND, "it is not here")
        elif message == b"fail":
            context.abort(grpc.StatusCode.DATA_LOSS, "")
        elif message == b"end":
            return
        elif message == b"hang":
            ended = threading.Event()
            context.add_callback(ended.set)
            ended.wait(TIMEOUT_S)
        else:
            yield message


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(respond)
    with serving("Stream", handler) as target:
        yield target


@pytest.fixture
def channel(target: str) -> Iterator[grpc.Channel]:
    with connected(target) as channel:
        yield channel


@pytest.fixture(params=[pytest.param(DirectStream, marks=direct), QueuedStream])
def open_(request: pytest.FixtureRequest, channel: grpc.Channel) -> Iterator[Open]:
    opened: list[MessageStream] = []

    def open_one(metadata: Any = ()) -> MessageStream:
        opened.append(request.param(method_of(channel), metadata))
        return opened[-1]

    yield open_one
    for stream in opened:
        stream.cancel()


def method_of(channel: Any) -> Any:
    return channel.stream_stream("/test.Messages/Stream")


@direct
def test_direct_streams_are_used(channel: grpc.Channel) -> None:
    stream = open_stream(method_of(channel))
    assert isinstance(stream, DirectStream)
    stream.cancel()


def test_other_channels_have_ordinary_streams(channel: grpc.Channel) -> None:
    class Interceptor(grpc.StreamStreamClientInterceptor):
        def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
            return continuation(details, requests)

    stream = open_stream(method_of(grpc.intercept_channel(channel, Interceptor())))
    assert isinstance(stream, QueuedStream)
    stream.send(b"a")
    assert stream.receive() == b"a"
    stream.cancel()


def test_a_release_of_grpc_without_its_parts(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_stream, "_PARTS", {})
    stream = open_stream(method_of(channel))
    assert isinstance(stream, QueuedStream)
    stream.cancel()


def test_messages_return_in_order(open_: Open) -> None:
    stream = open_()
    for index in range(50):
        stream.send(b"%d" % index)
        assert stream.receive() == b"%d" % index
    for index in range(50):
        stream.send(b"%d" % index)
    assert [stream.receive() for _ in range(50)] == [b"%d" % index for index in range(50)]


def test_empty_messages(open_: Open) -> None:
    stream = open_()
    stream.send(b"")
    assert stream.receive() == b""


def test_one_thread_sends_while_another_receives(open_: Open) -> None:
    stream = open_()
    messages = [b"%d " % index * (index * 997 % 5000) for index in range(500)]

    def send() -> None:
        for message in messages:
            stream.send(message)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert [stream.receive() for _ in messages] == messages
    finally:
        sender.join(TIMEOUT_S)


def test_messages_above_the_window_of_the_connection(open_: Open) -> None:
    stream = open_()
    for _ in range(20):
        stream.send(LARGE)
    assert all(stream.receive() == LARGE for _ in range(20))


@pytest.mark.parametrize("last", ENDINGS)
def test_the_end_of_a_stream(open_: Open, last: bytes) -> None:
    stream = open_()
    stream.send(b"a")
    stream.send(last)
    assert stream.receive() == b"a"
    for _ in range(2):
        expected: type[Exception] = StopIteration if ENDINGS[last] is None else grpc.RpcError
        with pytest.raises(expected) as caught:
            stream.receive()
        if isinstance(caught.value, grpc.Call):
            assert caught.value.code() is ENDINGS[last]
        stream.send(b"after the end")


def test_errors_have_text_and_trailing_metadata(open_: Open) -> None:
    stream = open_()
    stream.send(b"details")
    with pytest.raises(grpc.RpcError) as caught:
        stream.receive()
    error = caught.value
    assert isinstance(error, grpc.Call)
    assert error.details() == "it is not here"
    assert dict(error.trailing_metadata() or ())["about-bin"] == b"\0\1"


def test_nothing_listens() -> None:
    with grpc.insecure_channel("unix:/nonexistent/socket") as channel:
        stream = open_stream(method_of(channel))
        stream.send(b"a")
        with pytest.raises(grpc.RpcError) as caught:
            stream.receive()
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_thread_that_receives_learns_of_the_end(target: str, how: str) -> None:
    channel = grpc.insecure_channel(target)
    stream = open_stream(method_of(channel))
    stream.send(b"hang")
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(stream.receive)
        stream.cancel() if how == "cancel" else channel.close()
        with pytest.raises(grpc.RpcError) as caught:
            received.result(TIMEOUT_S)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    stream.cancel()
    channel.close()


def test_a_closed_channel(target: str) -> None:
    channel = grpc.insecure_channel(target)
    method = method_of(channel)
    channel.close()
    with pytest.raises(ValueError, match=r"closed channel|Channel closed"):
        open_stream(method)


def test_metadata_and_tokens(channel: grpc.Channel) -> None:
    authorized = AuthorizedChannel(channel, lambda: (("authorization", "Bearer a"),))
    stream = open_stream(method_of(authorized), (("traceparent", "b"),))
    assert isinstance(stream, DirectStream if direct_stream._PARTS else QueuedStream)
    stream.send(b"metadata")
    keys = stream.receive()
    assert b"'authorization'" in keys and b"'traceparent'" in keys
    stream.cancel()


@direct
def test_cancelled_streams_are_freed(channel: grpc.Channel) -> None:
    others = {id(stream) for stream in states_of_calls(channel)}  # of other tests in this process
    for length in range(20):
        stream = DirectStream(method_of(channel), ())
        for _ in range(length):
            stream.send(LARGE)
        stream.cancel()
    free_cancelled_streams()
    limit = time.monotonic() + TIMEOUT_S
    while (left := {id(stream) for stream in states_of_calls(channel)} - others) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not left


def states_of_calls(channel: Any) -> list[Any]:
    """Return the streams whose call gRPC has not freed."""
    gc.collect()
    return [stream for stream in gc.get_objects() if type(stream) is DirectStream and stream._due]
