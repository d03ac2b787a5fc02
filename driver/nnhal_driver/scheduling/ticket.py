"""Requests for admission, and the tickets of executions that wait for it."""

import threading
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from nnhal.errors import HalError, missed_deadline
from nnhal.types import OMITTED
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline, now_ns

SHORT_NS = 5_000_000
"""Running time up to which an execution is short."""

SortKey = tuple[int, int, int]


def sort_key(priority: int, deadline: Deadline, number: int) -> SortKey:
    """Return a key that sorts by descending priority, then by deadline, then by order of arrival."""
    return (-priority, deadline.at_ns if deadline.at_ns != OMITTED else 2**63, number)


class AdmissionRequest(NamedTuple):
    """Priority, deadline and owner of an execution that asks for admission.

    Attributes:
        priority: a `Priority`.
        owner: the client on whose behalf it runs; None is an owner too.
        min_run_ns: lower bound of its running time; 0 if unknown.
        usual_ns: running time to expect; 0 if unknown.
    """

    priority: int
    deadline: Deadline = NO_DEADLINE
    owner: Hashable = None
    min_run_ns: int = 0
    usual_ns: int = 0

    @property
    def is_short(self) -> bool:
        """True if it will probably end at once."""
        return 0 < self.usual_ns <= SHORT_NS

    @property
    def latest_start(self) -> Deadline:
        """The instant by which the execution must start to be done in time."""
        return Deadline(self.deadline.at_ns - self.min_run_ns) if self.deadline.at_ns != OMITTED else NO_DEADLINE

    def deadline_error(self) -> HalError | None:
        """Return MISSED_DEADLINE_TRANSIENT if the execution can no longer be done in time, else None."""
        if self.deadline.at_ns == OMITTED or not self.latest_start.has_passed():
            return None
        if self.deadline.has_passed():
            return missed_deadline("the deadline passed before the execution could start")
        left, needed = (f"{ns / 1e6:.3g} ms" for ns in (self.deadline.at_ns - now_ns(), self.min_run_ns))
        return missed_deadline(f"{left} are left, and no recent execution of this model took less than {needed}")


class Slot(Protocol):
    """Slot of an execution. The methods are for the thread that runs it."""

    @property
    def paused_ns(self) -> int:
        """Time between its turns."""

    def take_turns(self) -> None:
        """Let others run if they wait and this has run for some time.

        Raises:
            HalError: it must end.
        """

    def give_way(self) -> None:
        """Free the slot if others wait: the work goes on in another process."""


class Ticket:
    """Place of one execution in an admission queue, and later its permission to run.

    Args:
        on_decided: called once, from any thread, when a ticket that was queued is granted or rejected. `error` then
            holds the reason for a rejection. It must neither block nor raise. None: a thread waits for `decided`.

    Attributes:
        decided: event for a waiting thread; None until the ticket is queued.
        key: position in the queue of its owner.
        queued_ns: time.perf_counter_ns() when it was queued; 0 if it never was.
        granted_ns: time.perf_counter_ns() when it was granted, or got its last turn.
        released_ns: likewise when it was released.
        paused_ns: time between its turns.
        is_passing: whether its slot is one of those that short executions have while long ones occupy the others.
        is_released: whether its slot has been freed.
    """

    __slots__ = (
        "decided",
        "error",
        "granted_ns",
        "is_passing",
        "is_released",
        "key",
        "on_decided",
        "paused_ns",
        "queued_ns",
        "released_ns",
        "request",
    )

    def __init__(self, request: AdmissionRequest, on_decided: Callable[["Ticket"], None] | None = None) -> None:
        self.request = request
        self.on_decided = on_decided
        self.decided: threading.Event | None = None
        self.error: HalError | None = None
        self.key: SortKey = (0, 0, 0)
        self.queued_ns = 0
        self.granted_ns = self.released_ns = self.paused_ns = 0
        self.is_passing = self.is_released = False

    @property
    def wait_ns(self) -> int:
        """Time in the queue of a granted ticket."""
        return self.granted_ns - self.queued_ns if self.queued_ns else 0

    def __lt__(self, other: "Ticket") -> bool:
        return self.key < other.key

    def notify(self) -> None:
        """Report that the ticket was granted or rejected."""
        on_decided, self.on_decided = self.on_decided, None  # a ticket must not keep its execution alive
        if on_decided is not None:
            on_decided(self)
        else:
            assert self.decided is not None
            self.decided.set()
