"""Response streams of non-blocking handlers, which occupy no thread.

gRPC gives such a handler a function that sends responses. Two concurrent sends on one stream, or a second end of it,
break the whole server. So each stream has a lock and ends once. A send blocks while the client does not read, so it
must not run on the server's own thread (see docs/decisions.md).
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

import grpc

from nnhal.errors import HalError
from nnhal_service.grpc_support.errors import set_error

M = TypeVar("M")
Send = Callable[[M | None], None]


class QueuedSend(Generic[M]):
    """Function that sends responses in order on another thread, so that it never blocks. Thread safe.

    Args:
        send: sends one response; None ends the stream.
    """

    def __init__(self, send: Send[M], executor: Executor) -> None:
        self._send = send
        self._executor = executor
        self._queue: deque[M | None] = deque()
        self._is_sending = False
        self._lock = threading.Lock()

    def __call__(self, message: M | None) -> None:
        """Send a response soon."""
        with self._lock:
            self._queue.append(message)
            if self._is_sending:
                return
            self._is_sending = True
        self._executor.submit(self._send_queued)

    def _send_queued(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._is_sending = False
                    return
                message = self._queue.popleft()
            self._send(message)


class ResponseStream(Generic[M]):
    """The sending side of one call. Thread safe."""

    def __init__(self, context: grpc.ServicerContext, send: Send[M]) -> None:
        self._context = context
        self._send = send
        self._lock = threading.Lock()
        self._ended = False

    def send(self, message: M) -> bool:
        """Send a message, and return whether the client is still connected. Blocks while the client does not read."""
        with self._lock:
            if not self._ended and self._context.is_active():
                self._send(message)
            return not self._ended and self._context.is_active()

    def send_and_end(self, message: M) -> None:
        """Send the only message of a call and end the call. Does nothing if the call has ended."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if self._context.is_active():
                self._send(message)
            self._send(None)

    def end(self, error: HalError | None = None) -> None:
        """End the call, with an error or without. Does nothing if the call has ended."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if error is not None:
                set_error(self._context, error)
            self._send(None)

    @property
    def active(self) -> bool:
        """The client is still connected."""
        return not self._ended and self._context.is_active()
