"""Response streams that hold no thread, of handlers marked `experimental_non_blocking`.

grpc hands such a handler a function that sends. Two sends at once on one stream, or a second end, harm the whole
server, and a send waits while the client does not read: so each stream has a lock and ends once, and nobody sends from
the server's own thread (see docs/decisions.md).
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

from nnhal.errors import HalError
from service.rpc import fail

M = TypeVar("M")
Send = Callable[[M | None], None]


class ResponseStream(Generic[M]):
    """The sending side of one call."""

    def __init__(self, context: grpc.ServicerContext, send: Send[M]) -> None:
        self._context = context
        self._raw_send = send
        self._lock = threading.Lock()
        self._ended = False

    def send(self, message: M) -> bool:
        """Sends a message; gives whether the client was still there afterwards. Waits for a slow client."""
        with self._lock:
            if not self._ended and self._context.is_active():
                self._raw_send(message)
            return not self._ended and self._context.is_active()

    def answer(self, message: M) -> None:
        """Sends the one message of a call and ends it; does nothing when it has ended."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if self._context.is_active():
                self._raw_send(message)
            self._raw_send(None)

    def end(self, error: HalError | None = None) -> None:
        """Ends the call, with an error or without; later ends do nothing."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if error is not None:
                fail(self._context, error)
            self._raw_send(None)

    @property
    def active(self) -> bool:
        """Whether the client is still there."""
        return not self._ended and self._context.is_active()
