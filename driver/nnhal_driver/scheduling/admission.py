"""Admission of executions: a fair semaphore with a bounded queue.

The queue serves owners fairly: the next slot goes to the owner with the least running time so far. Among the executions
of one owner, the highest priority goes first, then the earliest deadline, then the order of arrival (the HAL orders
only the models of one client). Executions that can no longer be done in time are rejected and do not block later ones.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from nnhal.errors import HalError, limit_exceeded
from nnhal_driver.scheduling.cancellation import Cancellation, cancelled_error
from nnhal_driver.scheduling.deadline import NO_DEADLINE
from nnhal_driver.scheduling.ticket import AdmissionRequest, SortKey, Ticket, sort_key


def queue_full(limit: str, length: int) -> HalError:
    """Return the error for work that arrives when a queue is full."""
    return limit_exceeded(limit, f"the queue is full: {length} are waiting already")


class _OwnerState:
    """Executions of one owner.

    Attributes:
        served_ns: running time so far. A new owner starts at the level of the owner that was served last.
        running: number of executions that have a slot.
        waiting: heap of queued tickets.
    """

    __slots__ = ("running", "served_ns", "waiting")

    def __init__(self, served_ns: int) -> None:
        self.served_ns = served_ns
        self.running = 0
        self.waiting: list[Ticket] = []


@dataclass(frozen=True, slots=True)
class ExecutionCounts:
    """Numbers of executions since the start, by outcome.

    Attributes:
        started: executions that got a slot.
        refused: executions rejected on arrival because they could not be done in time.
        expired: executions rejected in the queue because they could no longer be done in time.
        wasted: executions that got a slot and missed their deadline all the same.
        wasted_ns: running time of the wasted ones.
    """

    started: int = 0
    refused: int = 0
    expired: int = 0
    wasted: int = 0
    wasted_ns: int = 0


class AdmissionQueue:
    """Semaphore that lets at most `width` executions run, with at most `limit` waiting. Thread safe.

    Args:
        width: number of slots.
        limit: length of the queue (limit queued_executions).
        clock: monotonic clock in nanoseconds that measures running time.
    """

    def __init__(self, width: int, limit: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._free = width
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._owners: dict[Hashable, _OwnerState] = {}
        self._waiting = 0
        self._level_ns = 0
        self._numbers = itertools.count()
        self._counts = dict.fromkeys(ExecutionCounts.__slots__, 0)

    @property
    def counts(self) -> ExecutionCounts:
        """Numbers of executions until now."""
        with self._lock:
            return ExecutionCounts(**self._counts)

    @property
    def waiting(self) -> int:
        """Number of queued executions."""
        return self._waiting

    def admit(self, request: AdmissionRequest, cancellation: Cancellation | None = None) -> "BlockingTicket":
        """Return a context manager that waits for a slot on the calling thread, and holds it."""
        return BlockingTicket(self, request, cancellation)

    def acquire(self, ticket: Ticket) -> bool:
        """Ask for a slot. A ticket that is granted must be released.

        Returns:
            True if the slot was granted at once; False if the ticket is queued. A queued ticket is notified later.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be done in time; RESOURCE_EXHAUSTED_TRANSIENT: the queue is
                full.
        """
        request = ticket.request
        error = None if request.deadline is NO_DEADLINE else request.deadline_error()
        with self._lock:
            if error is not None:
                self._counts["refused"] += 1
                raise error
            if self._free == 0 and self._waiting >= self._limit:
                raise queue_full("queued_executions", self._limit)
            owner = self._owners.get(request.owner)
            if owner is None:
                owner = self._owners[request.owner] = _OwnerState(self._level_ns)
            if self._free > 0:
                self._grant(owner, ticket)
                return True
            if ticket.on_decided is None:
                ticket.decided = threading.Event()
            ticket.key = sort_key(request.priority, request.deadline, next(self._numbers))
            heapq.heappush(owner.waiting, ticket)
            self._waiting += 1
            return False

    def release(self, ticket: Ticket) -> None:
        """Free the slot of a granted ticket."""
        elapsed = self._clock() - ticket.granted_ns
        request = ticket.request
        missed = request.deadline is not NO_DEADLINE and request.deadline.has_passed()
        with self._lock:
            owner = self._owners[request.owner]
            owner.running -= 1
            owner.served_ns += elapsed
            self._free += 1
            if missed:
                self._counts["wasted"] += 1
                self._counts["wasted_ns"] += elapsed
            decided: Sequence[Ticket] = self._serve() if self._waiting else ()
            self._remove_if_idle(request.owner)
        for other in decided:
            other.notify()

    def withdraw(self, ticket: Ticket, error: HalError) -> bool:
        """Reject a queued ticket with an error. Return whether it was still queued."""
        with self._lock:
            owner = self._owners.get(ticket.request.owner)
            if owner is None or ticket not in owner.waiting:
                return False
            owner.waiting.remove(ticket)
            heapq.heapify(owner.waiting)
            self._waiting -= 1
            ticket.error = error
            if ticket.request.latest_start.has_passed():
                self._counts["expired"] += 1
            self._remove_if_idle(ticket.request.owner)
        ticket.notify()
        return True

    def wait(self, ticket: Ticket, cancellation: Cancellation | None) -> None:
        """Wait on the calling thread until a queued ticket is granted.

        Raises:
            HalError: it is rejected, for the reasons given at `BlockingTicket`.
        """
        assert ticket.decided is not None
        if cancellation is not None:
            cancellation.on_cancel(lambda: self._cancel(ticket))
        while not ticket.decided.wait(ticket.request.latest_start.remaining_s()):
            if error := ticket.request.deadline_error():
                self.withdraw(ticket, error)  # sets `decided`, unless the ticket was granted at the last moment
        if ticket.error is not None:
            raise ticket.error

    def _cancel(self, ticket: Ticket) -> None:
        self.withdraw(ticket, cancelled_error())

    def _serve(self) -> list[Ticket]:
        """Grant the free slots. Return the tickets to notify: those granted, and those that expired."""
        decided = []
        while self._free > 0 and self._waiting > 0:
            owner = min((state for state in self._owners.values() if state.waiting), key=_serving_order)
            ticket = heapq.heappop(owner.waiting)
            self._waiting -= 1
            ticket.error = ticket.request.deadline_error()
            if ticket.error is None:
                self._grant(owner, ticket)
            else:
                self._counts["expired"] += 1
                self._remove_if_idle(ticket.request.owner)
            decided.append(ticket)
        return decided

    def _grant(self, owner: _OwnerState, ticket: Ticket) -> None:
        self._level_ns = max(self._level_ns, owner.served_ns)
        owner.running += 1
        self._free -= 1
        ticket.granted_ns = self._clock()
        self._counts["started"] += 1

    def _remove_if_idle(self, name: Hashable) -> None:
        """Remove an owner without executions. When it returns, it starts level with the others."""
        owner = self._owners.get(name)
        if owner is not None and not owner.running and not owner.waiting:
            del self._owners[name]


class BlockingTicket(Ticket):
    """Context manager of `AdmissionQueue.admit`. A generator would cost as much as the queue itself."""

    __slots__ = ("_cancellation", "_queue")

    def __init__(self, queue: AdmissionQueue, request: AdmissionRequest, cancellation: Cancellation | None) -> None:
        super().__init__(request)
        self._queue = queue
        self._cancellation = cancellation

    def __enter__(self) -> None:
        """Wait for a slot.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be done in time, or no slot was free in time;
                RESOURCE_EXHAUSTED_TRANSIENT: the queue is full; GENERAL_FAILURE: cancelled.
        """
        if not self._queue.acquire(self):
            self._queue.wait(self, self._cancellation)

    def __exit__(self, *_: object) -> None:
        self._queue.release(self)


def _serving_order(owner: _OwnerState) -> tuple[int, int, SortKey]:
    return (owner.served_ns, owner.running, owner.waiting[0].key)
