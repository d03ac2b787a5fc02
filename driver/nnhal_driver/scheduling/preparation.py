"""Preparations: work that waits for a slot, runs on a preparation thread, and ends exactly once.

A preparation ends with the result of its work, at its deadline, or when it is cancelled, whichever comes first. A
queued one then leaves the queue. A running one cannot be interrupted: its result is dropped, and it keeps its slot
until it returns or calls its check. One that waits for a plug-in, or has taken long while others wait, gives its slot
away, and does not get it back.
"""

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from nnhal.errors import MISSED_DEADLINE, HalError, expired, missed_deadline
from nnhal.types import OMITTED
from nnhal_driver.scheduling.admission import AdmissionQueue
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.current_work import CurrentWork, current_work
from nnhal_driver.scheduling.ticket import AdmissionRequest, Ticket
from nnhal_driver.scheduling.timers import Timer, Timers
from nnhal_driver.scheduling.work_times import WorkTimes

T = TypeVar("T")

LONG_NS = 1_000_000_000
"""Running time after which a preparation no longer keeps others from running."""
Check = Callable[[], None]
"""Function that work calls between its steps. It raises a HalError if the work must end."""


class Work(Protocol[T]):
    """Steps of one preparation."""

    def run(self, check: Check) -> T:
        """Do the work and return its result."""

    def fail(self, error: BaseException) -> T:
        """Return the result of a preparation that ends with an error: an early end, or what `run` has raised."""

    def notify(self, result: T) -> None:
        """Receive the result. Called once, from any thread. It must neither block nor raise."""

    def close(self) -> None:
        """Free resources. Called once: after `run`, or if `run` is never called. It must not raise."""


class PreparationThreads(Protocol):
    """The part of a scheduler that preparations use."""

    @property
    def preparations(self) -> AdmissionQueue:
        """Queue for the slots of preparations."""

    @property
    def timers(self) -> Timers:
        """Timers for deadlines."""

    def run_preparation(self, job: Callable[[], None]) -> None:
        """Run a job on a preparation thread."""

    def replace_thread(self) -> bool:
        """Start another preparation thread in place of the calling one. Return whether that was possible."""

    def end_preparation(self) -> None:
        """Count a preparation that has left the queue and the threads."""


class PreparationTask(Generic[T]):
    """One preparation. Thread safe."""

    def __init__(
        self, request: AdmissionRequest, cancellation: Cancellation, work: Work[T], times: WorkTimes | None = None
    ) -> None:
        self._times = times or WorkTimes()
        self._context = contextvars.copy_context()  # it may tell log lines of the work for whom it is
        self._deadline = request.deadline
        self._cancellation = cancellation
        self._work = work
        self._ticket = Ticket(request, self._on_decided)
        self._lock = threading.Lock()
        self._timer: Timer | None = None
        self._waited = False
        self._started = False
        self._ended = False
        self._thread = 0

    def launch(self, threads: PreparationThreads) -> None:
        """Ask for a slot. Call it once only.

        If the deadline has passed, the preparation ends at once with MISSED_DEADLINE_PERSISTENT.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: the queue is full. The work is neither notified nor closed.
        """
        self._threads = threads
        try:
            granted = threads.preparations.acquire(self._ticket)
        except HalError:
            if not self._deadline.has_passed():
                raise
            self._reject(expired("the deadline had passed before the preparation began"))
            return
        # a queued preparation may have run and ended already
        self._start_timer(threads.timers)
        self._cancellation.on_cancel(self._cancel)
        if granted:
            threads.run_preparation(self._run)
        elif self._ended:
            self._cancellation.off_cancel(self._cancel)

    def check(self) -> None:
        """Raise if the work must end.

        Raises:
            HalError: MISSED_DEADLINE_*, or GENERAL_FAILURE: cancelled.
        """
        self._cancellation.check()
        if self._deadline.has_passed():
            raise self._late_error()
        if self._threads.preparations.is_overdue(self._ticket, LONG_NS) and self._thread == threading.get_ident():
            self.give_way()

    def give_way(self) -> None:
        """Give the slot to another preparation. Called on the thread of this one, which goes on or waits."""
        if not self._ticket.is_released and self._threads.replace_thread():
            self._threads.preparations.release(self._ticket)

    # ---- Early ends -------------------------------------------------------------------------------------

    def _start_timer(self, timers: Timers) -> None:
        if self._deadline.at_ns == OMITTED:
            return
        timer = timers.call_at(self._deadline.at_ns, self._expire)
        with self._lock:
            if not self._ended:
                self._timer = timer
                return
        timer.cancel()

    def _expire(self) -> None:
        self._abort(self._late_error())

    def _cancel(self) -> None:
        self._abort(self._cancellation.error())

    def _abort(self, error: HalError) -> None:
        with self._lock:
            if self._ended:
                return
            threads, work = self._threads, self._work
        if not threads.preparations.withdraw(self._ticket, error):  # it has a slot
            self._end(work.fail(error))

    def _late_error(self) -> HalError:
        """Return the error of a missed deadline. A retry is likely to help only if time was lost in the queue."""
        if not self._started:
            return missed_deadline("the deadline passed while the preparation waited in the queue")
        if self._waited:
            return missed_deadline("the deadline passed during the preparation, which had waited in the queue")
        return expired("the deadline passed during the preparation")

    # ---- The queue --------------------------------------------------------------------------------------

    def _on_decided(self, ticket: Ticket) -> None:
        """Run the work if the ticket, which was queued, is granted."""
        self._waited = True
        if ticket.error is None:
            self._threads.run_preparation(self._run)
        else:
            self._reject(self._late_error() if ticket.error.status in MISSED_DEADLINE else ticket.error)

    def _reject(self, error: HalError) -> None:
        """End a preparation that will never run."""
        try:
            self._work.close()
            self._end(self._work.fail(error))
        finally:
            self._leave()

    def _run(self) -> None:
        """Run the work on a preparation thread, which it leaves when its client is notified."""
        try:
            try:
                self._started, self._thread = True, threading.get_ident()
                result = None if self._ended else self._run_work()
            finally:
                self._work.close()
                self._threads.preparations.release(self._ticket)
            if result is not None and not self._end(result):
                self._times.end_unwanted()
        finally:
            self._leave()

    def _run_work(self) -> T:
        check = _WorkCheck(self)
        self._times.queued_ns = self._ticket.wait_ns
        started_ns = self._times.started_ns = time.perf_counter_ns()
        try:
            self._context.run(current_work.set, CurrentWork(check, check.give_way))
            return self._context.run(self._work.run, check)
        except BaseException as error:  # also SystemExit: the client must be notified, and the thread serves others
            result = self._work.fail(error)
            # its frames may refer to the error, and so keep all objects of the preparation until garbage is collected
            error.__traceback__ = None
            return result
        finally:
            self._times.device_ns = time.perf_counter_ns() - started_ns
            check.preparation = None

    # ---- The end ----------------------------------------------------------------------------------------

    def _end(self, result: T) -> bool:
        """Notify the client, unless that was done before. Return whether it was not."""
        with self._lock:
            if self._ended:
                return False
            self._ended = True
            work, timer, self._timer = self._work, self._timer, None
        if timer is not None:
            timer.cancel()
        work.notify(result)
        return True

    def _leave(self) -> None:
        """Drop what must not live as long as the cancellation, which its client holds."""
        threads = self._threads
        self._cancellation.off_cancel(self._cancel)
        self._ticket.on_decided = None
        del self._work, self._threads, self._context
        threads.end_preparation()


class _WorkCheck:
    """Check of one preparation. It does nothing once the work has returned, because backends may keep it."""

    __slots__ = ("preparation",)

    def __init__(self, preparation: PreparationTask[Any]) -> None:
        self.preparation: PreparationTask[Any] | None = preparation

    def __call__(self) -> None:
        if (preparation := self.preparation) is not None:
            preparation.check()

    def give_way(self) -> None:
        if (preparation := self.preparation) is not None:
            preparation.give_way()
