"""Long work in Python: checks of whether it must end, turns for other threads, and a pause of the garbage collector.

Threads that compute in Python take turns of 5 ms with the interpreter lock. A call that needs the lock several times
then waits several times. So long work pauses by itself, for less time than that, and more often while others need the
lock.

A full collection of garbage looks at every object, and nothing else of the process runs meanwhile, health checks
included. The objects of a large model are many, form few cycles, and cause several collections while they are created.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import Deadline

_INTERVAL_NS = 2_000_000
_BUSY_INTERVAL_NS = 300_000
_LONG_PAUSE_NS = 300_000
"""A pause that takes this long shows that others use the lock."""
_PAUSE_S = 50e-6
"""Long enough for a waiting thread to wake up and take the lock."""
_collector_paused = threading.Lock()


def proceed() -> None:
    """Check of work that nothing ends early."""


class PacedCheck:
    """Function to call between the steps of long work. Most calls cost no more than a look at the clock.

    `check` raises a HalError if the work must end.
    """

    __slots__ = ("_check", "_next_ns")

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._next_ns = time.perf_counter_ns() + _INTERVAL_NS

    def __call__(self) -> None:
        """Check and pause if some time has passed since the last pause.

        Raises:
            HalError: the work must end.
        """
        start = time.perf_counter_ns()
        if start < self._next_ns:
            return
        self._check()
        time.sleep(_PAUSE_S)
        end = time.perf_counter_ns()
        self._next_ns = end + (_INTERVAL_NS if end - start < _LONG_PAUSE_NS else _BUSY_INTERVAL_NS)


def call_check(deadline: Deadline, cancellation: Cancellation) -> Callable[[], None]:
    """Return a check of the analysis of a model on the thread of a call."""
    is_late = deadline.has_passed()

    def check() -> None:
        if is_late:  # the same error as if the work were done before anyone looks at the deadline
            deadline.check_on_arrival("the preparation")
        deadline.check("the analysis of the model")
        cancellation.check()

    return PacedCheck(check)


class CurrentCheck:
    """Check of a graph, which goes through several stages of a preparation. Outside of them it does nothing."""

    __slots__ = ("_check",)

    def __init__(self) -> None:
        self._check: Callable[[], None] = proceed

    def __call__(self) -> None:
        """Call the check of the current stage."""
        self._check()

    @contextmanager
    def stage(self, check: Callable[[], None]) -> Iterator[None]:
        """Use a check for the duration of the context."""
        self._check = check
        try:
            yield
        finally:
            self._check = proceed


@contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the collector during the context, unless another one does. So work without end cannot stop it for ever."""
    if not gc.isenabled() or not _collector_paused.acquire(blocking=False):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _collector_paused.release()
