"""How long a transfer waits for its client: one that stands still is ended, so that it does not keep its thread.

Uploads and reads share a few threads. A client that stops in the middle of one would otherwise take a thread from all
others for as long as its connection lives.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

from service.log import event

T = TypeVar("T")


class Patience:
    """Watches transfers, on one thread. Close it when done.

    Args:
        seconds: how long the next chunk may take to come, or to be taken.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[grpc.ServicerContext, float] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nnhal-patience", daemon=True)
        self._thread.start()

    def receive(self, chunks: Iterator[T], context: grpc.ServicerContext) -> Iterator[T]:
        """The chunks that a client sends."""
        while True:
            with self._wait(context):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def send(self, chunks: Iterable[T], context: grpc.ServicerContext) -> Iterator[T]:
        """Chunks for a client."""
        for chunk in chunks:
            with self._wait(context):
                yield chunk

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()

    @contextmanager
    def _wait(self, context: grpc.ServicerContext) -> Iterator[None]:
        with self._lock:
            self._waiting[context] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._waiting[context]

    def _watch(self) -> None:
        while not self._closed.wait(self._seconds / 4):
            for context in self._overdue():
                event("transfer-stalled", peer=context.peer(), seconds=self._seconds)
                context.cancel()

    def _overdue(self) -> list[grpc.ServicerContext]:
        latest = time.monotonic() - self._seconds
        with self._lock:
            return [context for context, since in self._waiting.items() if since < latest]
