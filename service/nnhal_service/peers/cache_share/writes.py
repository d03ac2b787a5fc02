"""Writes to the share, and everything else that no client waits for: one queue with one thread."""

import os
import queue
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass

from nnhal_service.metrics import catalog
from nnhal_service.peers.cache_share.breaker import CircuitBreaker
from nnhal_service.peers.cache_share.envelope import MAX_OBJECT_BYTES, PRELUDE_BYTES, declared_bytes, is_same_model
from nnhal_service.peers.cache_share.reads import describe_error
from nnhal_service.peers.cache_share.stores import StoreSource
from nnhal_service.peers.cache_share.sweep import SWEEP_S, sweep

QUEUE_LENGTH = 64
"""Entries that wait to be written. Further ones are dropped: they stay in the local cache."""
REFRESH_S = 86400.0
"""Age from which an object that was used gets the current time. Eviction goes by this time."""

_ATTEMPTS = 3
_POLL_S = 0.5
_FIRST_SWEEP_S = 60.0

Count = Callable[..., None]
"""Adds to a counter: its metric, its labels, and `amount`."""


@dataclass(frozen=True, slots=True)
class Write:
    """An object to write.

    Attributes:
        head: its first bytes.
        files: descriptors of the files with the rest, which the writer closes.
        is_replaced: whether the object that is there is known to be invalid.
        is_refresh: whether the object is there, and shall get the current time only.
    """

    name: str
    head: bytes
    files: tuple[int, ...]
    is_replaced: bool = False
    is_refresh: bool = False

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            os.close(file)

    def value(self) -> bytes | None:
        """Return the bytes of the object, or None if they are not what the head says."""
        sizes = [os.fstat(file).st_size for file in self.files]
        if sum(sizes) + len(self.head) > MAX_OBJECT_BYTES:
            return None
        value = b"".join((self.head, *(os.pread(*each, 0) for each in zip(self.files, sizes, strict=True))))
        return value if declared_bytes(value) == len(value) else None


class Writer:
    """Owner of the queue and of its thread. Close it when done.

    Args:
        max_bytes: bytes that all objects may have; 0 if something else limits the store.
    """

    def __init__(self, store: StoreSource, breaker: CircuitBreaker, count: Count, max_bytes: int) -> None:
        self._store = store
        self._breaker = breaker
        self._count = count
        self._max_bytes = max_bytes
        self._queue: queue.Queue[Write | None] = queue.Queue(QUEUE_LENGTH)
        self._stopping = threading.Event()
        self._sweep_at = time.monotonic() + _FIRST_SWEEP_S * random.uniform(1, 2)  # members start together
        self._thread = threading.Thread(target=self._run, name="nnhal-share-write", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of objects that wait."""
        return self._queue.qsize()

    def add(self, write: Write) -> None:
        """Write an object some time, unless too many wait."""
        try:
            self._queue.put_nowait(write)
        except queue.Full:
            write.close()
            self._count(catalog.SHARE_WRITES, "dropped")

    def close(self, flush_s: float) -> int:
        """Write what waits, for some seconds at most, and return how many objects are given up."""
        self._stopping.set()
        with suppress(queue.Full):
            self._queue.put_nowait(None)  # wakes the thread
        self._thread.join(flush_s)
        return self.waiting + 1 if self._thread.is_alive() else 0

    def _run(self) -> None:
        while not (self._stopping.is_set() and self._queue.empty()):
            try:
                write = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                self._sweep_if_due()
                continue
            if write is not None:
                with closing(write):
                    self._count(catalog.SHARE_WRITES, self._try_write(write))

    def _try_write(self, write: Write) -> str:
        """Write an object, in several attempts if necessary, and return what happened, as a label."""
        attempts = 0
        while attempts < _ATTEMPTS:
            if self._breaker.refusal():
                if self._stopping.wait(_POLL_S):
                    return "dropped"
                continue
            attempts += 1
            try:
                result = self._refresh(write) if write.is_refresh else self._write(write)
            except Exception as error:  # a store may raise anything
                self._breaker.fail(describe_error(error))
                continue
            self._breaker.succeed()
            return result
        return "error"

    def _write(self, write: Write) -> str:
        value = write.value()
        if value is None:
            return "too_large" if sum(os.fstat(file).st_size for file in write.files) > MAX_OBJECT_BYTES else "changed"
        if not write.is_replaced:
            if self._store().create(write.name, value):
                self._count(catalog.SHARE_WRITTEN_BYTES, amount=len(value))
                return "written"
            if self._is_same(write):
                return "exists"
        self._store().replace(write.name, value)
        self._count(catalog.SHARE_WRITTEN_BYTES, amount=len(value))
        return "replaced"

    def _is_same(self, write: Write) -> bool:
        """Return whether the object that is there is for the same model. If not, the last one counts, as locally."""
        try:
            return is_same_model(write.head, self._store().read(write.name, 0, PRELUDE_BYTES))
        except FileNotFoundError:  # removed in the meantime
            return False

    def _refresh(self, write: Write) -> str:
        try:
            is_old = time.time() - self._store().modified_at(write.name) > REFRESH_S
        except FileNotFoundError:
            is_old = True
        value = write.value() if is_old else None
        if value is None:
            return "recent"
        self._store().touch(write.name, value)
        return "refreshed"

    def _sweep_if_due(self) -> None:
        if not self._max_bytes or time.monotonic() < self._sweep_at or self._breaker.is_open:
            return
        self._sweep_at = time.monotonic() + SWEEP_S * random.uniform(0.5, 1)
        try:
            evicted = sweep(self._store(), self._max_bytes, time.time())
        except Exception as error:  # a store may raise anything
            self._breaker.fail(describe_error(error))
            return
        self._count(catalog.SHARE_EVICTIONS, amount=evicted)
