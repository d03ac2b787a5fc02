"""Executions that a backend has only started when `execute` returns (`Run.defer`)."""

from abc import abstractmethod
from collections.abc import Callable

Wait = Callable[[], None]
"""Returns when the outputs of an execution are written, or raises."""


class DeferringRun:
    """Part of the host's `Run` that collects waits. Most executions have none, and pay nothing.

    Attributes:
        deferred: waits that have not been called, in the order of the calls; None if there were none.
    """

    __slots__ = ()
    deferred: list[Wait] | None

    def defer(self, wait: Wait) -> None:
        """Add a wait; see `Run.defer`."""
        if self.deferred is None:
            self.deferred = []  # type: ignore[misc]  # subclasses have the slot
        self.deferred.append(wait)

    def finish(self) -> None:
        """Call all waits; see `wait_for_all`."""
        if self.deferred:
            wait_for_all(self.deferred)


class TurnTakingRun(DeferringRun):
    """Part of the host's `Run` that lets other executions run. A thread that holds a lock or an engine only checks."""

    __slots__ = ()

    @abstractmethod
    def take_turns(self) -> None:
        """Check, and let others run for a while if they wait. Raises as `Run.check`."""

    @abstractmethod
    def check_elsewhere(self) -> None:
        """Check an execution whose work another process does, so that others may have its slot. Raises likewise."""


def wait_for_all(waits: list[Wait]) -> None:
    """Remove and call waits, those too that they add, even if one fails.

    Raises:
        HalError: an execution failed. Backends may raise anything else.
    """
    failure: BaseException | None = None
    while waits:
        try:
            waits.pop(0)()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


def count_deferred(run: object) -> int:
    """Return the number of waits of an execution."""
    return len(run.deferred) if isinstance(run, DeferringRun) and run.deferred else 0


def take_deferred(run: object, first: int) -> list[Wait]:
    """Remove and return the waits of an execution from number `first` on."""
    if not isinstance(run, DeferringRun) or not run.deferred:
        return []
    taken = run.deferred[first:]
    del run.deferred[first:]
    return taken
