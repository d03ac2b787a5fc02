"""Threads of a device.

Preparations run on a few threads of their own (`nnhal_driver.scheduling.preparation`). Synchronous executions run on
the thread of their caller, fenced ones on worker threads. Executions need a slot of one admission queue, preparations a
slot of another (`nnhal_driver.scheduling.admission`). One more thread runs the timers that end work at its deadline.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

from nnhal.errors import HalError, general_failure, out_of_memory
from nnhal_driver.scheduling.admission import AdmissionQueue
from nnhal_driver.scheduling.preparation import PreparationTask, T
from nnhal_driver.scheduling.timers import Timers

_MORE_WORKERS = 64
"""Threads for fenced executions while others have no slot any more and wait for a device."""

_MORE_PREPARATIONS = 32
"""Preparations that take long or wait for plug-ins, each on its thread, while others use their slots."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Maximum numbers of preparations and executions that wait."""

    preparations: int = 256
    executions: int = 1024


class Workers:
    """Threads for fenced executions that have a slot: a pool, and more while some of them wait. Close it when done."""

    def __init__(self, limit: int) -> None:
        self._pool = ThreadPoolExecutor(limit, "nnhal-execute")
        self._most = limit + _MORE_WORKERS
        self._more: set[threading.Thread] = set()
        self._waiting = 0
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job on a free thread. A job reports its own errors.

        Raises:
            HalError: GENERAL_FAILURE: the device is shutting down; RESOURCE_EXHAUSTED_TRANSIENT: no thread can start.
        """
        pending = [job]
        try:
            if self._waiting and len(self._more) < self._most:
                self._start_thread(job)
            else:
                self._pool.submit(_run_pending, pending)
        except RuntimeError as error:
            if self._closed:
                raise _shutting_down() from None
            try:
                pending.pop()  # the pool keeps a job for which it cannot start a thread
            except IndexError:  # another thread of the pool has taken it
                return
            raise out_of_memory("a thread", MemoryError(str(error))) from None

    def _start_thread(self, job: Callable[[], None]) -> None:
        """Run a job on a thread of its own. Raises RuntimeError: it cannot start, or the pool is closed."""

        def run() -> None:
            _run(job, "an execution")
            with self._lock:
                self._more.remove(thread)

        thread = threading.Thread(target=run, name="nnhal-execute-more")
        with self._lock:
            if self._closed:
                raise RuntimeError
            thread.start()
            self._more.add(thread)

    def close(self) -> None:
        """Finish the queued jobs, then end the threads."""
        with self._lock:
            self._closed = True
            more = list(self._more)
        for thread in more:
            thread.join()
        self._pool.shutdown()

    @property
    def can_wait(self) -> bool:
        """True if there are threads for others while one more job waits."""
        return self._waiting < _MORE_WORKERS

    def begin_wait(self) -> None:
        """Note that a job will free its slot and wait for a device (`Run.defer`). Others need another thread then."""
        with self._lock:
            self._waiting += 1

    def end_wait(self) -> None:
        """Note that such a job ends."""
        with self._lock:
            self._waiting -= 1


def _run_pending(pending: list[Callable[[], None]]) -> None:
    try:
        job = pending.pop()
    except IndexError:  # `submit` has reported an error for it
        return
    _run(job, "an execution")


class Scheduler:
    """Owner of the threads of one device. Use it as a context manager, or call `close`.

    Args:
        executions: slots for executions, and threads for fenced ones.
        preparations: slots and threads for preparations.
        per_owner: slots for preparations that one owner may have; 0 for all of them.

    Attributes:
        admission: the queue for slots of executions.
        preparations: the queue for the slots of preparations, one for each preparation thread.
        analyses: the queue for the slot of analyses of large models on threads of calls. They compute in Python, so
            that several at once would only delay each other, and all other calls.
    """

    def __init__(self, executions: int, preparations: int, queues: QueueLimits, *, per_owner: int = 0) -> None:
        self.admission = AdmissionQueue(executions, queues.executions, counts_executions=True)
        self.preparations = AdmissionQueue(
            preparations, queues.preparations, limit_name="queued_preparations", per_owner=per_owner
        )
        self.analyses = AdmissionQueue(1, queues.preparations, limit_name="queued_preparations")
        self.workers = Workers(executions)
        self.timers = Timers("nnhal-deadlines")
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._changed = threading.Condition()
        self._unfinished = 0
        self._replaced: set[threading.Thread] = set()
        self._closed = False
        self._threads: list[threading.Thread] = []
        for _ in range(preparations):
            self._start_thread()

    def prepare(self, preparation: PreparationTask[T]) -> None:
        """Launch a preparation.

        Raises:
            HalError: GENERAL_FAILURE: the device is shutting down; RESOURCE_EXHAUSTED_TRANSIENT: the queue is full.
        """
        with self._changed:
            if self._closed:
                raise _shutting_down()
            self._unfinished += 1
        try:
            preparation.launch(self)
        except BaseException:
            self.end_preparation()
            raise

    def run_preparation(self, job: Callable[[], None]) -> None:
        """Run a job, which has a slot, on a preparation thread."""
        self._jobs.put(job)

    def replace_thread(self) -> bool:
        """Start another preparation thread in place of the calling one, which ends after its job.

        Return whether that was possible.
        """
        with self._changed:
            if len(self._replaced) == _MORE_PREPARATIONS:
                return False
            try:
                self._start_thread()
            except RuntimeError:  # no thread can start
                return False
            self._replaced.add(threading.current_thread())
        return True

    def end_preparation(self) -> None:
        """Count a preparation that has left the queue and the threads."""
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Finish the queued preparations, then end the threads."""
        with self._changed:
            first, self._closed = not self._closed, True
            self._changed.wait_for(lambda: self._unfinished == 0)
        if first:
            for _ in self._threads:
                self._jobs.put(None)
        for thread in tuple(self._threads):
            thread.join()
        self.workers.close()
        self.timers.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _run(job, "a preparation")
            del job  # a waiting thread must keep no model alive
            with self._changed:
                if (thread := threading.current_thread()) in self._replaced:
                    self._replaced.remove(thread)
                    self._threads.remove(thread)
                    return

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"nnhal-prepare-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)


def _run(job: Callable[[], None], subject: str) -> None:
    try:
        job()
    except BaseException:  # also SystemExit: the thread serves other clients
        _log.exception("%s ended without a result", subject)


def _shutting_down() -> HalError:
    return general_failure("the device is shutting down")
