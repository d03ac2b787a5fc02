"""The driver's threads, and who may run when.

Preparations run on a few threads of their own. Executions run on their caller's thread, but only as many at once as the
machine has cores; the rest wait, highest priority first, then earliest deadline, then in order of arrival.
"""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from driver.deadline import Deadline
from nnhal.errors import HalError, general_failure, missed_deadline
from nnhal.types import OMITTED, ErrorKind, ErrorStatus

_log = logging.getLogger(__name__)

Key = tuple[int, int, int]


def _key(priority: int, deadline: Deadline, number: int) -> Key:
    """What sorts first goes first."""
    return (-priority, deadline.at_ns if deadline.at_ns != OMITTED else 2**63, number)


@dataclass(frozen=True, slots=True)
class Queues:
    """How many may wait for their turn."""

    preparations: int
    executions: int


def _full(limit: str, length: int) -> HalError:
    reason = f"{length} wait for their turn already (limit {limit})"
    return HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, reason, kind=ErrorKind.LIMIT, limit=limit)


class Gate:
    """Lets at most `width` executions run at once, and at most `queue` wait."""

    def __init__(self, width: int, queue: int) -> None:
        self._free = width
        self._queue = queue
        self._lock = threading.Lock()
        self._waiting: list[tuple[Key, threading.Event]] = []
        self._numbers = itertools.count()

    @contextmanager
    def pass_(self, priority: int, deadline: Deadline) -> Iterator[None]:
        """Waits for a turn and holds it.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: the turn did not come in time; RESOURCE_EXHAUSTED_TRANSIENT: too many
                wait already.
        """
        self._enter(priority, deadline)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, priority: int, deadline: Deadline) -> None:
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            if len(self._waiting) >= self._queue:
                raise _full("queued_executions", self._queue)
            turn = threading.Event()
            entry = (_key(priority, deadline, next(self._numbers)), turn)
            heapq.heappush(self._waiting, entry)
        if not turn.wait(deadline.remaining_s()):
            self._give_up(entry)
            raise missed_deadline("the deadline passed while the execution waited for its turn")

    def _give_up(self, entry: tuple[Key, threading.Event]) -> None:
        with self._lock:
            if entry in self._waiting:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
                return
        self._leave()  # the turn came at the last moment

    def _leave(self) -> None:
        with self._lock:
            if self._waiting:
                heapq.heappop(self._waiting)[1].set()
            else:
                self._free += 1


class Scheduler:
    """Owns the threads of one device. Use as a context manager, or call `close`."""

    def __init__(self, executions: int, preparations: int, queues: Queues) -> None:
        self.gate = Gate(executions, queues.executions)
        self._queue = queues.preparations
        self._jobs: list[tuple[Key, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"nnhal-prepare-{i}", daemon=True) for i in range(preparations)
        ]
        for thread in self._threads:
            thread.start()

    def prepare(self, priority: int, deadline: Deadline, job: Callable[[], None]) -> None:
        """Queues a job for the preparing threads. A job answers for its own errors.

        Raises:
            HalError: GENERAL_FAILURE: the device is shutting down; RESOURCE_EXHAUSTED_TRANSIENT: too many wait already.
        """
        with self._changed:
            if self._closed:
                raise general_failure("the device is shutting down")
            if len(self._jobs) >= self._queue:
                raise _full("queued_preparations", self._queue)
            heapq.heappush(self._jobs, (_key(priority, deadline, next(self._numbers)), job))
            self._changed.notify()

    def close(self) -> None:
        """Finishes the jobs that are queued, then ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
                _, job = heapq.heappop(self._jobs)
            try:
                job()
            except Exception:
                _log.exception("a preparation ended without an answer")
            del job  # a waiting thread must keep no model alive
