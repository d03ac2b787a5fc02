"""Random calls of an admission queue, compared with a simple model of it."""

import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

import pytest

from nnhal.errors import HalError
from nnhal.types import OMITTED, ErrorStatus, Priority
from nnhal_driver.scheduling.admission import AdmissionQueue
from nnhal_driver.scheduling.cancellation import cancelled_error
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_driver.scheduling.ticket import SHORT_NS, AdmissionRequest, Ticket
from tests.driver.clock import MS, FakeClock

Key = tuple[int, int, int]
LATEST = 2**63


@dataclass
class _Job:
    """Work in the model."""

    number: int
    owner: Hashable
    priority: int
    deadline_ns: int
    is_short: bool
    started_ns: int = 0
    is_passing: bool = False

    @property
    def key(self) -> Key:
        return -self.priority, LATEST if self.deadline_ns == OMITTED else self.deadline_ns, self.number


@dataclass
class _Model:
    """Simple implementation of an admission queue.

    Attributes:
        decided: what was decided about queued jobs: their number, and the status.
    """

    width: int
    limit: int
    running: dict[int, _Job] = field(default_factory=dict)
    waiting: list[_Job] = field(default_factory=list)
    served_ns: dict[Hashable, int] = field(default_factory=dict)
    level_ns: int = 0
    decided: list[tuple[int, int]] = field(default_factory=list)

    def length(self, owner: Hashable) -> int:
        return sum(job.owner == owner for job in self.waiting)

    def slots(self, owner: Hashable) -> int:
        return sum(job.owner == owner for job in self.running.values())

    @property
    def has_slot(self) -> bool:
        return sum(not job.is_passing for job in self.running.values()) < self.width

    def may_pass(self, job: _Job) -> bool:
        passing = [other for other in self.running.values() if other.is_passing]
        others = [other for other in self.running.values() if not other.is_passing]
        is_blocked = len(others) == self.width and not any(other.is_short for other in others)
        return job.is_short and is_blocked and len(passing) < self.width and not self.slots(job.owner)

    def arrive(self, job: _Job, now_ns: int) -> int | bool:
        """Return whether the job is granted, or the status of its rejection."""
        if job.deadline_ns != OMITTED and job.deadline_ns <= now_ns:
            return ErrorStatus.MISSED_DEADLINE_TRANSIENT
        job.is_passing = not self.has_slot and self.may_pass(job)
        runs = self.has_slot or job.is_passing
        if not runs and len(self.waiting) == self.limit:
            owners = list(dict.fromkeys(other.owner for other in self.waiting))
            most = max(owners, key=self.length)
            ties = [owner for owner in owners if self.length(owner) == self.length(most)]
            if self.length(most) <= self.length(job.owner) + 1:
                return ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
            # several owners may have the most: the queue takes any of them
            most = next(iter(owner for owner in self.served_ns if owner in ties))
            last = max((other for other in self.waiting if other.owner == most), key=lambda other: other.key)
            self.waiting.remove(last)
            self.decided.append((last.number, ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT))
            self.forget()
        self.served_ns.setdefault(job.owner, self.level_ns)
        if runs:
            self.start(job, now_ns)
            return True
        if self.length(job.owner) == 0:
            self.served_ns[job.owner] = max(self.served_ns[job.owner], self.level_ns)
        self.waiting.append(job)
        return False

    def start(self, job: _Job, now_ns: int) -> None:
        job.started_ns = now_ns
        self.running[job.number] = job
        self.level_ns = max(self.level_ns, self.served_ns[job.owner])

    def finish(self, number: int, now_ns: int) -> None:
        job = self.running.pop(number)
        self.served_ns[job.owner] += now_ns - job.started_ns
        while self.waiting:
            best = {
                owner: min((other for other in self.waiting if other.owner == owner), key=lambda other: other.key)
                for owner in {other.owner for other in self.waiting}
            }
            candidates = [other for other in best.values() if self.has_slot or self.may_pass(other)]
            if not candidates:
                break
            next_ = min(candidates, key=lambda o: (self.slots(o.owner), self.served_ns[o.owner], o.key))
            next_.is_passing = not self.has_slot
            self.waiting.remove(next_)
            if next_.deadline_ns != OMITTED and next_.deadline_ns <= now_ns:
                self.decided.append((next_.number, ErrorStatus.MISSED_DEADLINE_TRANSIENT))
            else:
                self.start(next_, now_ns)
                self.decided.append((next_.number, ErrorStatus.NONE))
        self.forget()

    def withdraw(self, number: int) -> bool:
        job = next((other for other in self.waiting if other.number == number), None)
        if job is None:
            return False
        self.waiting.remove(job)
        self.decided.append((number, ErrorStatus.GENERAL_FAILURE))
        self.forget()
        return True

    def forget(self) -> None:
        """Forget owners without work."""
        busy = {job.owner for job in (*self.running.values(), *self.waiting)}
        self.served_ns = {owner: served for owner, served in self.served_ns.items() if owner in busy}


class _Comparison:
    """A queue and its model, which get the same random calls."""

    def __init__(self, rng: random.Random, clock: FakeClock) -> None:
        self.rng, self.clock = rng, clock
        width, limit = rng.randint(1, 3), rng.randint(1, 12)
        self.short = rng.choice((0.0, 0.2, 0.8))
        self.queue = AdmissionQueue(width, limit, lambda: clock.now_ns)
        self.model = _Model(width, limit)
        self.tickets: dict[int, Ticket] = {}
        self.decided: list[tuple[int, int]] = []

    def arrive(self) -> None:
        number = len(self.tickets)
        owner, priority = self.rng.randrange(4), self.rng.choice(list(Priority))
        deadline_ns = OMITTED if self.rng.random() < 0.7 else self.clock.now_ns + self.rng.randrange(20) * MS
        is_short = self.rng.random() < self.short
        request = AdmissionRequest(priority, Deadline(deadline_ns), owner, usual_ns=is_short * SHORT_NS)
        ticket = self.tickets[number] = Ticket(request, lambda ticket: self.note(number, ticket))
        result: int | bool
        try:
            result = self.queue.acquire(ticket)
        except HalError as error:
            result = error.status
        assert result == self.model.arrive(_Job(number, owner, priority, deadline_ns, is_short), self.clock.now_ns)

    def note(self, number: int, ticket: Ticket) -> None:
        self.decided.append((number, ErrorStatus.NONE if ticket.error is None else ticket.error.status))

    def finish(self) -> None:
        if self.model.running:
            number = self.rng.choice(list(self.model.running))
            self.model.finish(number, self.clock.now_ns)
            self.queue.release(self.tickets[number])

    def cancel(self) -> None:
        if self.tickets:
            number = self.rng.randrange(len(self.tickets))
            assert self.queue.withdraw(self.tickets[number], cancelled_error()) == self.model.withdraw(number)

    def advance(self) -> None:
        self.clock.advance(self.rng.randrange(5) * MS)

    def run(self, calls: int) -> None:
        actions = (self.arrive, self.arrive, self.arrive, self.finish, self.finish, self.cancel, self.advance)
        for _ in range(calls):
            self.rng.choice(actions)()
            assert self.decided == self.model.decided
            assert (self.queue.waiting, self.queue.running) == (len(self.model.waiting), len(self.model.running))
            assert {owner: state.served_ns for owner, state in self.queue._owners.items()} == self.model.served_ns
        while self.model.running:
            self.finish()
        assert self.decided == self.model.decided
        assert (self.queue.waiting, self.queue._owners) == (0, {})


@pytest.mark.parametrize("seed", range(60))
def test_queue_decides_like_its_model(seed: int, clock: FakeClock) -> None:
    comparison = _Comparison(random.Random(seed), clock)
    comparison.run(300)
    assert max(Counter(number for number, _ in comparison.decided).values(), default=0) <= 1


@pytest.mark.parametrize("seed", range(10))
def test_owners_that_always_wait_get_equal_time(seed: int, clock: FakeClock) -> None:
    """Priorities, numbers of requests and running times do not matter."""
    rng = random.Random(seed)
    queue = AdmissionQueue(rng.randint(1, 3), 10_000, lambda: clock.now_ns)
    running: list[Ticket] = []
    owners = {f"owner {i}": (rng.choice(list(Priority)), rng.randint(1, 8)) for i in range(rng.randint(2, 5))}
    longest_ns = 5 * MS
    for _ in range(600):
        for owner, (priority, burst) in owners.items():
            for _ in range(burst):
                ticket = Ticket(AdmissionRequest(priority, owner=owner), running.append)
                if queue.waiting < 9000 and queue.acquire(ticket):
                    running.append(ticket)
        clock.advance(rng.randint(1, longest_ns // 2))
        queue.release(running.pop(rng.randrange(len(running))))
    assert all(state.waiting for state in queue._owners.values())
    served = [state.served_ns for state in queue._owners.values()]
    assert max(served) - min(served) <= 0.1 * max(served)
