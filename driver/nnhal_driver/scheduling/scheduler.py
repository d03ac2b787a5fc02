"""Threads of a device.

Preparations run on a few threads of their own. Synchronous executions run on the thread of their caller, fenced ones on
worker threads. Both need a slot of the admission queue (`nnhal_driver.scheduling.admission`). One more thread runs the
timers that end waiting executions.
"""

import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Full, PriorityQueue

from nnhal.errors import HalError, general_failure, out_of_memory
from nnhal_driver.scheduling.admission import AdmissionQueue, queue_full
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_driver.scheduling.ticket import SortKey, sort_key
from nnhal_driver.scheduling.timers import Timers

_LAST = 2**63
"""First part of a key that sorts after all jobs."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Maximum numbers of preparations and executions that wait."""

    preparations: int
    executions: int


class Workers:
    """Thread pool for fenced executions that have a slot. Threads start on demand. Close it when done."""

    def __init__(self, limit: int) -> None:
        self._pool = ThreadPoolExecutor(limit, "nnhal-execute")
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job on a free thread. A job reports its own errors.

        Raises:
            HalError: GENERAL_FAILURE: the device is shutting down; RESOURCE_EXHAUSTED_TRANSIENT: no thread can start.
        """
        pending = [job]
        try:
            self._pool.submit(_run_pending, pending)
        except RuntimeError as error:
            if self._closed:
                raise _shutting_down() from None
            try:
                pending.pop()  # the pool keeps a job for which it cannot start a thread
            except IndexError:  # another thread of the pool has taken it
                return
            raise out_of_memory("a thread", MemoryError(str(error))) from None

    def close(self) -> None:
        """Finish the queued jobs, then end the threads."""
        self._closed = True
        self._pool.shutdown()


def _run_pending(pending: list[Callable[[], None]]) -> None:
    try:
        job = pending.pop()
    except IndexError:  # `submit` has reported an error for it
        return
    _run(job, "an execution")


class Scheduler:
    """Owner of the threads of one device. Use it as a context manager, or call `close`.

    Attributes:
        admission: the queue for slots of executions.
        workers: the threads that run fenced executions.
        timers: the timers that end executions that wait too long.
    """

    def __init__(self, executions: int, preparations: int, queues: QueueLimits) -> None:
        self.admission = AdmissionQueue(executions, queues.executions)
        self.workers = Workers(executions)
        self.timers = Timers("nnhal-deadlines")
        self._jobs: PriorityQueue[tuple[SortKey, Callable[[], None] | None]] = PriorityQueue(queues.preparations)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"nnhal-prepare-{i}", daemon=True) for i in range(preparations)
        ]
        for thread in self._threads:
            thread.start()

    def prepare(self, priority: int, deadline: Deadline, job: Callable[[], None]) -> None:
        """Queue a job for the preparation threads. A job reports its own errors.

        Raises:
            HalError: GENERAL_FAILURE: the device is shutting down; RESOURCE_EXHAUSTED_TRANSIENT: the queue is full.
        """
        with self._lock:
            if self._closed:
                raise _shutting_down()
            try:
                self._jobs.put_nowait((sort_key(priority, deadline, next(self._numbers)), job))
            except Full:
                raise queue_full("queued_preparations", self._jobs.maxsize) from None

    def close(self) -> None:
        """Finish the queued jobs, then end the threads."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            for number, _ in enumerate(self._threads):
                self._jobs.put(((_LAST, 0, number), None))
        for thread in self._threads:
            thread.join()
        self.workers.close()
        self.timers.close()

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        while (job := self._jobs.get()[1]) is not None:
            _run(job, "a preparation")
            del job  # a waiting thread must keep no model alive


def _run(job: Callable[[], None], subject: str) -> None:
    try:
        job()
    except BaseException:  # also SystemExit: the thread serves other clients
        _log.exception("%s ended without a result", subject)


def _shutting_down() -> HalError:
    return general_failure("the device is shutting down")
