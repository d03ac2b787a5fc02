"""Preparations for tests: their work blocks until the test releases it, and they record what happens to them."""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from nnhal.errors import HalError, general_failure
from nnhal.types import OMITTED, ErrorStatus, Priority
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_driver.scheduling.preparation import Check, PreparationTask
from nnhal_driver.scheduling.scheduler import Scheduler
from nnhal_driver.scheduling.ticket import AdmissionRequest
from tests.driver.blocking_backend import TIMEOUT_S

Result = str | HalError


def do_nothing(check: Check) -> None:
    """Do no work."""


@dataclass(eq=False)
class RecordedWork:
    """Work that records its end.

    Attributes:
        step: the work itself.
        events: what happened, in order: "run", "close", "notify".
        results: results that the client was notified of.
        notified: set by the first notification.
    """

    step: Callable[[Check], None] = do_nothing
    events: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    notified: threading.Event = field(default_factory=threading.Event)

    def run(self, check: Check) -> Result:
        """Do the work."""
        self.events.append("run")
        try:
            self.step(check)
        except HalError as error:
            return error
        return "done"

    def fail(self, error: BaseException) -> Result:
        """Return the error."""
        return error if isinstance(error, HalError) else general_failure(repr(error))

    def notify(self, result: Result) -> None:
        """Record the result."""
        self.events.append("notify")
        self.results.append(result)
        self.notified.set()

    def close(self) -> None:
        """Record the call."""
        self.events.append("close")

    def status(self) -> ErrorStatus:
        """Wait for the notification and return its status."""
        assert self.notified.wait(TIMEOUT_S)
        (result,) = self.results
        return ErrorStatus(result.status) if isinstance(result, HalError) else ErrorStatus.NONE


@dataclass(eq=False)
class Blocker:
    """Work that blocks a preparation thread, without a check, until `go` is set."""

    started: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, check: Check) -> None:
        """Block."""
        self.started.set()
        assert self.go.wait(TIMEOUT_S)


def prepare(
    scheduler: Scheduler,
    work: RecordedWork,
    owner: Hashable = None,
    priority: int = Priority.MEDIUM,
    deadline_ns: int = OMITTED,
) -> Cancellation:
    """Launch a preparation and return its cancellation."""
    cancellation = Cancellation()
    request = AdmissionRequest(priority, Deadline(deadline_ns), owner)
    scheduler.prepare(PreparationTask[Result](request, cancellation, work))
    return cancellation


def block(scheduler: Scheduler, owner: Hashable = None) -> Blocker:
    """Occupy a preparation thread."""
    blocker = Blocker()
    prepare(scheduler, RecordedWork(blocker), owner)
    assert blocker.started.wait(TIMEOUT_S)
    return blocker
