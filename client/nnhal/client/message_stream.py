"""Streams of encoded messages in both directions, which a thread sends and receives on by itself."""

import queue
from collections.abc import Callable
from typing import Any, TypeAlias

from nnhal.client.security.token import AuthorizedMethod
from nnhal.grpc_internals.direct_stream import DirectStream, Metadata, allows_direct_stream


class QueuedStream:
    """Ordinary stream of gRPC, to which a queue hands the messages. One thread may send while another one receives."""

    def __init__(self, method: Callable[..., Any], metadata: Metadata = None) -> None:
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call = method(iter(self._outbox.get, None), metadata=metadata)

    def send(self, message: bytes) -> None:
        """Send a message. If the stream has ended, `receive` says so."""
        self._outbox.put(message)

    def receive(self) -> bytes:
        """Wait for the next message.

        Raises:
            StopIteration: the service has ended the stream.
            grpc.RpcError: the stream failed.
        """
        response: bytes = next(self._call)
        return response

    def cancel(self) -> None:
        """Cut off the stream. Never blocks."""
        self._outbox.put(None)
        self._call.cancel()


MessageStream: TypeAlias = DirectStream | QueuedStream


def open_stream(method: Callable[..., Any], metadata: Metadata = None) -> MessageStream:
    """Open a stream of a method of a channel that takes and returns encoded messages."""
    target = method
    if isinstance(target, AuthorizedMethod):
        target, metadata = target.authorize(metadata or ())
    if allows_direct_stream(target):
        return DirectStream(target, metadata)
    return QueuedStream(method, metadata)
