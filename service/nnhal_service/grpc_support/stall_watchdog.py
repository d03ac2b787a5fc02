"""Watchdog that cancels uploads and reads whose client has stalled.

Uploads and reads share a few threads. Without the watchdog, a client that stops in the middle of a transfer would
occupy a thread for as long as its connection lives.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import grpc

from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.log import event

T = TypeVar("T")


class StallWatchdog:
    """Cancels transfers whose next chunk takes too long to be sent or to be read.

    Args:
        timeout_s: seconds that a chunk may take.
    """

    def __init__(self, timeout_s: float, timers: Timers) -> None:
        self._timeout_s = timeout_s
        self._timers = timers

    def receive(self, chunks: Iterator[T], context: grpc.ServicerContext) -> Iterator[T]:
        """Yield the chunks that a client sends."""
        while True:
            with self._watch(context):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def send(self, chunks: Iterable[T], context: grpc.ServicerContext) -> Iterator[T]:
        """Yield the chunks that a client reads."""
        for chunk in chunks:
            with self._watch(context):
                yield chunk

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
