"""The driver's threads.

Preparations run on a few threads of their own. Synchronous executions run on their caller's thread, fenced ones on
workers; both only when the gate (`driver.gate`) lets them. One more thread keeps the time for those that wait.
"""

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from driver.deadline import Deadline
from driver.gate import Gate, Key, full, sort_key
from driver.timers import Timers
from nnhal.errors import HalError, general_failure, out_of_memory

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Queues:
    """How many may wait for their turn."""

    preparations: int
    executions: int


class Workers:
    """Threads that run what has its turn: made when they are needed, at most `limit`. Close them when done."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Runs a job, which answers for its own errors, as soon as a thread is free.

        Raises:
            HalError: GENERAL_FAILURE: the device is shutting down.
        """
        with self._changed:
            if self._closed:
                raise _shutting_down()
            self._jobs.append(job)
            if self._idle < len(self._jobs) and len(self._threads) < self._limit:
                self._grow()
            self._changed.notify()

    def close(self) -> None:
        """Finishes the jobs that are queued, then ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _grow(self) -> None:
        """One more thread. Where memory is too short for its stack, the job waits for those that there are.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: there are none; the job is not queued.
        """
        thread = threading.Thread(target=self._work, name=f"nnhal-execute-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                self._jobs.pop()
                raise out_of_memory("a thread", MemoryError(str(error))) from None
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._jobs or self._closed)
                self._idle -= 1
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            try:
                job()
            except Exception:
                _log.exception("an execution ended without an answer")
            del job  # a waiting thread must keep no memory alive


class Scheduler:
    """Owns the threads of one device. Use as a context manager, or call `close`.

    Attributes:
        gate: who may execute when.
        workers: they run fenced executions.
        timers: they end what waits for too long.
    """

    def __init__(self, executions: int, preparations: int, queues: Queues) -> None:
        self.gate = Gate(executions, queues.executions)
        self.workers = Workers(executions)
        self.timers = Timers("nnhal-deadlines")
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
                raise _shutting_down()
            if len(self._jobs) >= self._queue:
                raise full("queued_preparations", self._queue)
            heapq.heappush(self._jobs, (sort_key(priority, deadline, next(self._numbers)), job))
            self._changed.notify()

    def close(self) -> None:
        """Finishes the jobs that are queued, then ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self.workers.close()
        self.timers.close()

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


def _shutting_down() -> HalError:
    return general_failure("the device is shutting down")
