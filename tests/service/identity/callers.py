"""Clients with credentials, for tests: sessions over channels that send a header with each call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from nnhal.v1 import (
    error_pb2,
)
from tests.end_to_end.support.raw_client import RawSession, error_detail, raw_session_on


class _Details(grpc.ClientCallDetails):
    def __init__(self, details: grpc.ClientCallDetails, header: str) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = (*(details.metadata or ()), ("authorization", header))
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression


class _Header(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the header that a function returns to each call."""

    def __init__(self, header: Callable[[], str]) -> None:
        self._header = header

    def _call(self, continuation: Callable[..., Any], details: grpc.ClientCallDetails, request: Any) -> Any:
        return continuation(_Details(details, self._header()), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _call  # type: ignore[assignment]


@contextmanager
def channel_with(
    target: str, header: str | Callable[[], str] = "", credentials: grpc.ChannelCredentials | None = None
) -> Iterator[Any]:
    """Open a channel of its own connection, whose calls have a header, for the duration of a `with` block."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    opened = (
        grpc.insecure_channel(target, options)
        if credentials is None
        else grpc.secure_channel(target, credentials, options)
    )
    with opened as channel:
        if not header:
            yield channel
            return
        text = header
        yield grpc.intercept_channel(channel, _Header(text if callable(text) else lambda: str(text)))


@contextmanager
def open_session(
    target: str, header: str | Callable[[], str] = "", credentials: grpc.ChannelCredentials | None = None
) -> Iterator[RawSession]:
    """Open a session for the duration of a `with` block."""
    with channel_with(target, header, credentials) as channel, raw_session_on(channel) as raw:
        yield raw


def failure(call: Callable[[], object]) -> tuple[str, error_pb2.ErrorDetail]:
    """Make a call that fails, and return its gRPC code and error details."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert isinstance(caught.value, grpc.Call)
    return caught.value.code().name, error_detail(caught.value)
