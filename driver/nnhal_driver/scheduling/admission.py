"""Admission of executions and preparations: a fair semaphore with a bounded queue.

The queue serves owners fairly. The next slot goes to the owner with the fewest slots, then to that with the least
running time so far. Among the work of one owner, the highest priority goes first, then the earliest deadline, then the
order of arrival (the HAL orders only the models of one client). The owner is a session. Sessions that have a `Share`
together count as one owner; among them, the slots go in the same order. If some shares have weights, the running time
in proportion to the weight decides, instead of the number of slots. Work that can no longer be done in time is rejected
and does not block later work.

Executions take turns of `TURN_NS` where they can pause: between nodes, and in kernels of CpuRef. Engines cannot be
interrupted, so executions that are not short (`AdmissionRequest.is_short`) may occupy all slots for a while. Short ones
then pass them: there are as many further slots for these, of which an owner has at most one, and none if it has another
slot.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence

from nnhal.errors import HalError, limit_exceeded
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE
from nnhal_driver.scheduling.share import Share, share_of
from nnhal_driver.scheduling.ticket import AdmissionRequest, SortKey, Ticket, sort_key

TURN_NS = 50_000_000
"""Running time after which work that can pause lets others run."""


def queue_full(limit: str, length: int) -> HalError:
    """Return the error for work that arrives when a queue is full."""
    return limit_exceeded(limit, f"the queue is full: {length} are waiting already")


class _Use:
    """Use of the slots by one owner, or by all owners that have a share together.

    Attributes:
        weight: share of the device, relative to others.
        served_ns: running time so far. An owner that begins to wait starts at least at the level of the owner that was
            served last, so it cannot save up time during which it needed no slot.
        running: number of tickets that have a slot.
        queued: number of queued tickets.
        typical_ns: running time of recent work.
    """

    __slots__ = ("queued", "running", "served_ns", "typical_ns", "weight")

    def __init__(self, served_ns: int, weight: float) -> None:
        self.served_ns = served_ns
        self.weight = weight
        self.running = self.queued = 0
        self.typical_ns = 0

    def end(self, elapsed_ns: int) -> None:
        """Note that work has ended."""
        self.running -= 1
        # time of others' weights, so that levels can be compared
        self.served_ns += elapsed_ns if self.weight == 1.0 else int(elapsed_ns / self.weight)
        self.typical_ns += (elapsed_ns - self.typical_ns) >> 2

    @property
    def expected_ns(self) -> int:
        """Running time so far, in proportion to the weight, with what the running work will probably take."""
        return self.served_ns + int(self.running * self.typical_ns / self.weight)


class _OwnerState(_Use):
    """Work of one owner. `waiting`: heap of tickets; `group`: the owners with which it has a share, or None."""

    __slots__ = ("group", "waiting")

    def __init__(self, served_ns: int, group: "_Group | None" = None) -> None:
        # not by the base class: an owner without other work is created for each execution
        self.served_ns = served_ns
        self.weight = 1.0
        self.running = self.queued = self.typical_ns = 0
        self.waiting: list[Ticket] = []
        self.group = group


class _Group(_Use):
    """Work of all owners with one share. `members`: those with work; `level_ns`: time at which they begin to wait."""

    __slots__ = ("level_ns", "members")

    def __init__(self, served_ns: int, weight: float) -> None:
        super().__init__(served_ns, weight)
        self.members = self.level_ns = 0


class AdmissionQueue:
    """Semaphore that lets `width` executions run, and others pass, with at most `limit` waiting. Thread safe.

    Args:
        clock: monotonic clock in nanoseconds that measures running time.
        limit_name: name of the limit on the length.
        counts_executions: whether its work counts against quotas of executions.
        per_owner: slots that one owner, or all with the same share, may have; 0 for all slots.
    """

    def __init__(
        self,
        width: int,
        limit: int,
        clock: Callable[[], int] = time.perf_counter_ns,
        limit_name: str = "queued_executions",
        *,
        counts_executions: bool = False,
        per_owner: int = 0,
    ) -> None:
        self._width = self._free = width
        self._per_owner = per_owner or 2 * width
        self._limit = limit
        self._limit_name = limit_name
        self._clock = clock
        self._lock = threading.Lock()
        self._owners: dict[Hashable, _OwnerState] = {}
        self._groups: dict[Share, _Group] = {}
        self._counts_executions = counts_executions
        self._waiting = 0
        self._long = self._passing = 0  # slots of work that is not short, and of work that passes it
        self._weighted = 0  # number of owners whose share has a weight
        self._level_ns = 0
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        """Number of queued executions."""
        return self._waiting

    @property
    def running(self) -> int:
        """Number of executions that have a slot."""
        return self._width - self._free + self._passing

    def admit(self, request: AdmissionRequest, cancellation: Cancellation | None = None) -> "BlockingTicket":
        """Return a context manager that waits for a slot on the calling thread, and holds it."""
        return BlockingTicket(self, request, cancellation)

    def acquire(self, ticket: Ticket) -> bool:
        """Ask for a slot. A ticket that is granted must be released.

        If the queue is full, it rejects the last ticket of the owner with the most. So no owner can fill the queue.

        Returns:
            True if the slot was granted at once; False if the ticket is queued. A queued ticket is notified later.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be done in time; RESOURCE_EXHAUSTED_TRANSIENT: the queue is
                full, and no other owner has more tickets in it; or a quota of the share is exceeded.
        """
        request = ticket.request
        share = share_of(request.owner)
        if share is not None:
            share.require_time()
        if request.deadline is not NO_DEADLINE and (error := request.deadline_error()):
            try:
                raise error
            finally:
                del error  # the traceback has this frame
        with self._lock:
            owner = self._owners.get(request.owner) or self._new_owner(share)
            if share is not None and share.executions is not None and self._counts_executions:
                share.begin_execution()
            displaced = None
            is_free = self._free > 0 and (owner.group or owner).running < self._per_owner
            ticket.is_passing = not is_free and request.is_short and self._lets_pass and not _use(owner).running
            is_free = is_free or ticket.is_passing
            if not is_free and self._waiting >= self._limit:
                try:
                    displaced = self._displace(owner)
                except HalError:
                    self._end_execution(share)
                    raise
            if share is None:
                self._owners[request.owner] = owner
            else:
                self._add(request.owner, owner, share)
            if is_free:
                self._grant(owner, ticket)
                return True
            self._enqueue(owner, ticket)
        if displaced is not None:
            displaced.notify()
        return False

    @property
    def _lets_pass(self) -> bool:
        """True if a short execution may run now although there is no free slot, of an owner that has none."""
        return self._long >= self._width > self._passing

    def _end_execution(self, share: Share | None) -> None:
        """Count an execution no longer against the quota of its share: it has ended, or has left the queue."""
        if share is not None and self._counts_executions and share.executions is not None:
            share.end_execution()

    def _new_owner(self, share: Share | None) -> _OwnerState:
        if share is None:
            return _OwnerState(self._level_ns)
        group = self._groups.get(share) or _Group(self._level_ns, share.weight)
        return _OwnerState(group.level_ns, group)

    def _add(self, name: Hashable, owner: _OwnerState, share: Share) -> None:
        """Add an owner with a share that has work now, unless it is there already."""
        if owner.group is not None and name not in self._owners:
            owner.group.members += 1
            self._groups[share] = owner.group
            self._weighted += owner.group.weight != 1.0
        self._owners[name] = owner

    def _displace(self, owner: _OwnerState) -> Ticket:
        """Remove the last ticket of the owner with the most from the full queue, for one of an owner with fewer.

        Owners that have a share together count as one. Raises RESOURCE_EXHAUSTED_TRANSIENT if none has more.
        """
        waiting = ((name, state) for name, state in self._owners.items() if state.waiting)
        name, longest = max(waiting, key=lambda item: (_use(item[1]).queued, len(item[1].waiting)))
        if _use(longest).queued <= _use(owner).queued + 1:
            raise queue_full(self._limit_name, self._limit)
        ticket = max(longest.waiting)
        self._remove(name, longest, ticket)
        ticket.error = queue_full(self._limit_name, self._limit)
        return ticket

    def _enqueue(self, owner: _OwnerState, ticket: Ticket) -> None:
        request = ticket.request
        if ticket.on_decided is None:
            ticket.decided = threading.Event()
        ticket.key = sort_key(request.priority, request.deadline, next(self._numbers))
        ticket.queued_ns = time.perf_counter_ns()
        group = owner.group
        if group is None:
            if not owner.waiting:
                owner.served_ns = max(owner.served_ns, self._level_ns)
        else:
            if not group.queued:
                group.served_ns = max(group.served_ns, self._level_ns)
            if not owner.waiting:
                owner.served_ns = max(owner.served_ns, group.level_ns)
            group.queued += 1
        owner.queued += 1
        heapq.heappush(owner.waiting, ticket)
        self._waiting += 1

    def is_overdue(self, ticket: Ticket, turn_ns: int = TURN_NS) -> bool:
        """Return whether others wait, and a ticket has had its slot for longer than a turn."""
        return self._waiting > 0 and not ticket.is_released and self._clock() - ticket.granted_ns > turn_ns

    def take_turns(self, ticket: Ticket, cancellation: Cancellation | None) -> None:
        """Let others run if a ticket is overdue. Then wait on the calling thread until it is its turn again.

        Raises:
            HalError: as `wait`; the ticket has no slot any more.
        """
        if not self.is_overdue(ticket):
            return
        next_turn = Ticket(ticket.request._replace(min_run_ns=0))
        with self._lock:
            self._enqueue(self._owners[ticket.request.owner], next_turn)
        self.release(ticket, is_last=False)
        self.wait(next_turn, cancellation)
        ticket.paused_ns += next_turn.granted_ns - ticket.released_ns
        ticket.granted_ns, ticket.is_passing, ticket.is_released = next_turn.granted_ns, next_turn.is_passing, False

    def release(self, ticket: Ticket, *, is_last: bool = True) -> None:
        """Free the slot of a granted ticket, unless that has happened. Call it from one thread.

        `is_last`: whether its work has ended, and does not only take turns.
        """
        if ticket.is_released:
            return
        ticket.is_released = True
        ticket.released_ns = self._clock()
        elapsed = ticket.released_ns - ticket.granted_ns
        request = ticket.request
        with self._lock:
            owner = self._owners[request.owner]
            if owner.group is None and not self._weighted:
                owner.running -= 1
                owner.served_ns += elapsed
            else:
                owner.end(elapsed)
                if owner.group is not None:
                    owner.group.end(elapsed)
            self._count_slot(ticket, -1)
            decided: Sequence[Ticket] = self._serve() if self._waiting else ()
            self._remove_if_idle(request.owner)
        for other in decided:
            other.notify()
        if owner.group is not None and (share := share_of(request.owner)) is not None:
            share.spend(elapsed)
            if is_last:
                self._end_execution(share)

    def withdraw(self, ticket: Ticket, error: HalError) -> bool:
        """Reject a queued ticket with an error. Return whether it was still queued."""
        with self._lock:
            owner = self._owners.get(ticket.request.owner)
            if owner is None or ticket not in owner.waiting:
                return False
            self._remove(ticket.request.owner, owner, ticket)
            ticket.error = error
        ticket.notify()
        return True

    def wait(self, ticket: Ticket, cancellation: Cancellation | None) -> None:
        """Wait on the calling thread until a queued ticket is granted.

        Raises:
            HalError: it is rejected, for the reasons given at `BlockingTicket`.
        """
        assert ticket.decided is not None

        def withdraw() -> None:
            assert cancellation is not None
            self.withdraw(ticket, cancellation.error())

        if cancellation is not None:
            cancellation.on_cancel(withdraw)
        while not ticket.decided.wait(ticket.request.latest_start.remaining_s()):
            if error := ticket.request.deadline_error():
                self.withdraw(ticket, error)  # sets `decided`, unless the ticket was granted at the last moment
        if cancellation is not None:
            cancellation.off_cancel(withdraw)
        if ticket.error is not None:
            error, ticket.error = ticket.error, None
            try:
                raise error
            finally:
                del error  # the traceback has this frame

    def _serve(self) -> list[Ticket]:
        """Grant the free slots. Return the tickets to notify: those granted, and those that expired."""
        decided = []
        while (owner := self._next_owner()) is not None:
            ticket = heapq.heappop(owner.waiting)
            ticket.is_passing = self._free == 0
            self._count_dequeued(owner)
            ticket.error = ticket.request.deadline_error()
            if ticket.error is None:
                self._grant(owner, ticket)
            else:
                self._end_execution(share_of(ticket.request.owner))
                self._remove_if_idle(ticket.request.owner)
            decided.append(ticket)
        return decided

    def _next_owner(self) -> _OwnerState | None:
        """Return the owner whose first ticket is the next to get a slot, or None if there is none."""
        waiting = (state for state in self._owners.values() if state.waiting)
        if self._free:
            candidates = (state for state in waiting if _use(state).running < self._per_owner)
        elif self._lets_pass:
            candidates = (state for state in waiting if not _use(state).running and state.waiting[0].request.is_short)
        else:
            return None
        return min(candidates, key=_weighted_order if self._weighted else _serving_order, default=None)

    def _count_slot(self, ticket: Ticket, change: int) -> None:
        """Count the slot of a ticket that has been granted (1) or released (-1)."""
        if ticket.is_passing:
            self._passing += change
            return
        self._free -= change
        if not ticket.request.is_short:
            self._long += change

    def _grant(self, owner: _OwnerState, ticket: Ticket) -> None:
        group = owner.group
        if group is None:
            self._level_ns = max(self._level_ns, owner.served_ns)
        else:
            self._level_ns = max(self._level_ns, group.served_ns)
            group.level_ns = max(group.level_ns, owner.served_ns)
            group.running += 1
        owner.running += 1
        self._count_slot(ticket, 1)
        ticket.granted_ns = self._clock()

    def _remove(self, name: Hashable, owner: _OwnerState, ticket: Ticket) -> None:
        """Remove a queued ticket."""
        owner.waiting.remove(ticket)
        heapq.heapify(owner.waiting)
        self._count_dequeued(owner)
        self._end_execution(share_of(name))
        self._remove_if_idle(name)

    def _count_dequeued(self, owner: _OwnerState) -> None:
        owner.queued -= 1
        if owner.group is not None:
            owner.group.queued -= 1
        self._waiting -= 1

    def _remove_if_idle(self, name: Hashable) -> None:
        """Remove an owner without work. When it returns, it starts level with the others."""
        owner = self._owners.get(name)
        if owner is not None and not owner.running and not owner.waiting:
            del self._owners[name]
            if owner.group is not None and (share := share_of(name)) is not None:
                owner.group.members -= 1
                self._weighted -= owner.group.weight != 1.0
                if not owner.group.members:
                    del self._groups[share]


class BlockingTicket(Ticket):
    """Context manager of `AdmissionQueue.admit`. A generator would cost as much as the queue itself."""

    __slots__ = ("_cancellation", "_queue")

    def __init__(self, queue: AdmissionQueue, request: AdmissionRequest, cancellation: Cancellation | None) -> None:
        super().__init__(request)
        self._queue = queue
        self._cancellation = cancellation

    def __enter__(self) -> "BlockingTicket":
        """Wait for a slot.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be done in time, or no slot was free in time;
                RESOURCE_EXHAUSTED_TRANSIENT: the queue is full; GENERAL_FAILURE: cancelled.
        """
        if not self._queue.acquire(self):
            self._queue.wait(self, self._cancellation)
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.release(self)

    def release(self) -> None:
        """Free the slot before the end of the context."""
        self._queue.release(self)

    def take_turns(self) -> None:
        """Let others run if they wait and this has run for some time. Raises as `__enter__`."""
        self._queue.take_turns(self, self._cancellation)

    def give_way(self) -> None:
        """Free the slot if others wait: the work goes on in another process, and this thread only waits for it."""
        if self._queue.is_overdue(self):
            self._queue.release(self)


def _use(owner: _OwnerState) -> _Use:
    """Return the use that counts among others: that of all owners with the same share."""
    return owner if owner.group is None else owner.group


def _serving_order(owner: _OwnerState) -> tuple[int, int, int, int, SortKey]:
    # the time of running work is not known yet, so the number of slots comes first
    use = _use(owner)
    return (use.running, use.served_ns, owner.running, owner.served_ns, owner.waiting[0].key)


def _weighted_order(owner: _OwnerState) -> tuple[int, int, int, SortKey]:
    # a number of slots cannot be in proportion to weights if there are few
    return (_use(owner).expected_ns, owner.running, owner.served_ns, owner.waiting[0].key)
