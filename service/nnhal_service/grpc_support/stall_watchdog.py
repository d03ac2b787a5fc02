"""Watchdog that cancels uploads, reads and response streams whose client has stalled.

They occupy a thread while they wait for their client. Without the watchdog, a client that stops in the middle would
occupy the thread for as long as its connection lives.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import grpc

from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.log import event

T = TypeVar("T")


PROGRESS_BYTES = 2**16
"""Bytes that an upload must bring within the timeout, unless it ends. Single bytes could keep a thread for ever."""


class StallWatchdog:
    """Cancels transfers that take too long to be sent or to be read.

    Args:
        timeout_s: seconds that a chunk may take, or PROGRESS_BYTES of an upload in smaller chunks.
    """

    def __init__(self, timeout_s: float, timers: Timers) -> None:
        self._timeout_s = timeout_s
        self._timers = timers

    def receive(self, chunks: Iterator[T], context: grpc.ServicerContext, size: Callable[[T], int]) -> Iterator[T]:
        """Yield the chunks that a client sends.

        Args:
            chunks: the chunks.
            context: of the call.
            size: returns the size of a chunk in bytes.
        """
        while True:
            received = 0
            with self._watch(context):
                while received < PROGRESS_BYTES:
                    if (chunk := next(chunks, None)) is None:
                        return
                    received += size(chunk)
                    yield chunk

    def send(self, chunks: Iterable[T], context: grpc.ServicerContext) -> Iterator[T]:
        """Yield the chunks that a client reads."""
        for chunk in chunks:
            with self._watch(context):
                yield chunk

    def wrap_send(self, send: Callable[[T], None], context: grpc.ServicerContext) -> Callable[[T], None]:
        """Wrap the function that sends the responses of a non-blocking handler; None ends its stream."""

        def watched(message: T) -> None:
            if message is None:  # the end waits for no client
                send(message)
                return
            with self._watch(context):
                send(message)

        return watched

    @contextmanager
    def _watch(self, context: grpc.ServicerContext) -> Iterator[None]:
        timer = self._timers.call_at(now_ns() + int(self._timeout_s * 1e9), partial(self._cancel, context))
        try:
            yield
        finally:
            timer.cancel()

    def _cancel(self, context: grpc.ServicerContext) -> None:
        event("transfer-stalled", peer=context.peer(), seconds=self._timeout_s)
        context.cancel()
