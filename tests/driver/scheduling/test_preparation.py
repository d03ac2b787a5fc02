"""Preparations: each ends exactly once, with its result, at its deadline or on cancellation."""

import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from nnhal.errors import HalError
from nnhal.types import OMITTED, ErrorStatus, Priority
from nnhal_driver.scheduling import preparation
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.preparation import Check
from nnhal_driver.scheduling.scheduler import QueueLimits, Scheduler
from nnhal_driver.scheduling.ticket import Ticket
from tests.driver.blocking_backend import TIMEOUT_S, until
from tests.driver.clock import MS, FakeClock
from tests.driver.scheduling.preparations import Blocker, RecordedWork, block, prepare

TRANSIENT = ErrorStatus.MISSED_DEADLINE_TRANSIENT
PERSISTENT = ErrorStatus.MISSED_DEADLINE_PERSISTENT


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """Yield a scheduler with one preparation thread. In the end its queue must be empty."""
    with closing(Scheduler(executions=1, preparations=1, queues=QueueLimits(4, 10))) as running:
        yield running
    assert running.preparations.waiting == 0
    assert running.preparations._owners == {}


def test_result_is_delivered_after_the_work_is_closed(scheduler: Scheduler) -> None:
    work = RecordedWork()
    prepare(scheduler, work, deadline_ns=now_ns() + 10**12)
    assert work.status() == ErrorStatus.NONE
    assert work.events == ["run", "close", "notify"]


def test_queued_preparation_ends_at_its_deadline(scheduler: Scheduler, clock: FakeClock) -> None:
    """Its client does not wait until a thread is free."""
    blocker = block(scheduler)
    work = RecordedWork()
    prepare(scheduler, work, deadline_ns=clock.now_ns + MS)
    assert scheduler.preparations.waiting == 1
    clock.advance(MS)
    assert work.status() == TRANSIENT
    assert scheduler.preparations.waiting == 0
    blocker.go.set()
    scheduler.close()
    assert work.events == ["close", "notify"]


def test_queued_preparation_may_end_before_its_launch_returns(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread can be slower than the one that has freed the slot."""
    blocker = block(scheduler)
    acquire, end, ended = scheduler.preparations.acquire, scheduler.end_preparation, threading.Event()

    def end_both() -> None:
        end()
        if work.notified.is_set():
            ended.set()

    def acquire_late(ticket: Ticket) -> bool:
        granted = acquire(ticket)
        monkeypatch.setattr(scheduler, "end_preparation", end_both)
        blocker.go.set()
        assert ended.wait(TIMEOUT_S)
        return granted

    monkeypatch.setattr(scheduler.preparations, "acquire", acquire_late)
    work = RecordedWork()
    cancellation = prepare(scheduler, work, deadline_ns=now_ns() + 10**12)
    assert work.events == ["run", "close", "notify"]
    assert not cancellation._listeners
    assert scheduler._unfinished == 0


def test_deadline_that_passed_before_the_launch_is_persistent(scheduler: Scheduler) -> None:
    work = RecordedWork()
    prepare(scheduler, work, deadline_ns=0)
    assert work.notified.is_set(), "it does not wait for a thread or a timer"
    assert work.status() == PERSISTENT
    assert work.events == ["close", "notify"]


def test_deadline_that_passes_before_the_timer_runs_is_noticed_with_the_slot(
    scheduler: Scheduler, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = block(scheduler)
    monkeypatch.setattr(scheduler.timers, "call_at", lambda at, call: scheduler.timers)
    monkeypatch.setattr(scheduler.timers, "cancel", lambda: None)
    work = RecordedWork()
    prepare(scheduler, work, deadline_ns=clock.now_ns + MS)
    clock.advance(MS)
    blocker.go.set()
    assert work.status() == TRANSIENT
    assert work.events == ["close", "notify"]
    monkeypatch.undo()


@pytest.mark.parametrize(("waits", "expected"), [(False, PERSISTENT), (True, TRANSIENT)])
def test_running_preparation_ends_at_its_deadline(
    scheduler: Scheduler, clock: FakeClock, waits: bool, expected: ErrorStatus
) -> None:
    """A retry is likely to help only if time was lost in the queue. The late result is dropped."""
    first = block(scheduler) if waits else None
    blocker = Blocker()
    work = RecordedWork(blocker)
    prepare(scheduler, work, deadline_ns=clock.now_ns + MS)
    if first is not None:
        first.go.set()
    assert blocker.started.wait(TIMEOUT_S)
    clock.advance(MS)
    assert work.status() == expected
    blocker.go.set()
    scheduler.close()
    assert work.events == ["run", "notify", "close"]


def test_check_raises_when_the_deadline_has_passed(scheduler: Scheduler, clock: FakeClock) -> None:
    errors: list[HalError] = []

    def step(check: Check) -> None:
        check()
        clock.advance(MS)
        with pytest.raises(HalError) as caught:
            check()
        errors.append(caught.value)
        raise caught.value

    work = RecordedWork(step)
    prepare(scheduler, work, deadline_ns=clock.now_ns + MS)
    assert work.status() == PERSISTENT
    scheduler.close()
    assert [error.status for error in errors] == [PERSISTENT]


def test_long_preparation_keeps_no_others_waiting(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "LONG_NS", 0)
    go = threading.Event()

    def step(check: Check) -> None:
        while not go.wait(1e-3):
            check()

    long = RecordedWork(step)
    prepare(scheduler, long)
    for number in range(3):
        work = RecordedWork()
        prepare(scheduler, work, f"client {number}")
        assert work.status() == ErrorStatus.NONE
    assert not long.results
    go.set()
    assert long.status() == ErrorStatus.NONE
    assert until(lambda: len(scheduler._threads) == 1)


def test_check_does_nothing_after_the_work(scheduler: Scheduler, clock: FakeClock) -> None:
    """Backends may keep their options and call it at an execution."""
    checks: list[Check] = []
    work = RecordedWork(checks.append)
    cancellation = prepare(scheduler, work, deadline_ns=clock.now_ns + MS)
    assert work.status() == ErrorStatus.NONE
    clock.advance(MS)
    cancellation.cancel()
    scheduler.close()
    checks[0]()
    assert len(work.results) == 1


def test_cancelled_preparation_leaves_the_queue(scheduler: Scheduler) -> None:
    blocker = block(scheduler)
    work, other = RecordedWork(), RecordedWork()
    cancellation = prepare(scheduler, work)
    prepare(scheduler, other)
    cancellation.cancel()
    assert (scheduler.preparations.waiting, work.events) == (1, ["close", "notify"])
    assert work.status() == ErrorStatus.GENERAL_FAILURE
    cancellation.cancel()
    blocker.go.set()
    assert other.status() == ErrorStatus.NONE
    assert work.events == ["close", "notify"]


def test_cancelled_preparation_that_runs_is_told_by_its_check(scheduler: Scheduler) -> None:
    cancelled, told = threading.Event(), threading.Event()

    def step(check: Check) -> None:
        assert cancelled.wait(TIMEOUT_S)
        try:
            check()
        finally:
            told.set()

    work = RecordedWork(step)
    cancellation = prepare(scheduler, work)
    assert until(lambda: work.events == ["run"])
    cancellation.cancel()
    assert work.status() == ErrorStatus.GENERAL_FAILURE
    cancelled.set()
    scheduler.close()
    assert told.is_set()
    assert work.events == ["run", "notify", "close"]


def test_work_that_raises_notifies_once(scheduler: Scheduler) -> None:
    def leave(check: Check) -> None:
        raise SystemExit(3)

    broken, next_ = RecordedWork(leave), RecordedWork()
    prepare(scheduler, broken)
    prepare(scheduler, next_)
    assert (broken.status(), next_.status()) == (ErrorStatus.GENERAL_FAILURE, ErrorStatus.NONE)
    assert broken.events == ["run", "close", "notify"]


def test_owners_share_the_threads_whatever_their_priority(scheduler: Scheduler) -> None:
    blocker = block(scheduler, "first")
    order: list[str] = []
    works = []
    for owner, priority in (("pushy", Priority.HIGH), ("pushy", Priority.HIGH), ("modest", Priority.LOW)):
        works.append(RecordedWork(lambda check, name=owner: order.append(name)))  # type: ignore[misc]
        prepare(scheduler, works[-1], owner, priority)
    blocker.go.set()
    for work in works:
        assert work.status() == ErrorStatus.NONE
    assert order == ["pushy", "modest", "pushy"]


def test_full_queue_rejects_the_last_preparation_of_the_owner_with_the_most(scheduler: Scheduler) -> None:
    blocker = block(scheduler, "greedy")
    greedy = [RecordedWork() for _ in range(4)]
    for work in greedy:
        prepare(scheduler, work, "greedy")
    rejected = RecordedWork()
    with pytest.raises(HalError, match="limit queued_preparations"):
        prepare(scheduler, rejected, "greedy")
    assert rejected.events == [], "the caller reports the error of a launch"
    modest = RecordedWork()
    prepare(scheduler, modest, "modest")
    assert greedy[3].status() == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert greedy[3].events == ["close", "notify"]
    blocker.go.set()
    assert modest.status() == ErrorStatus.NONE


@pytest.mark.parametrize("end", ["result", "cancelled", "deadline"])
def test_cancellation_that_outlives_its_preparation_keeps_nothing_alive(
    scheduler: Scheduler, clock: FakeClock, end: str
) -> None:
    gc.collect()
    gc.disable()
    try:
        blocker = block(scheduler) if end != "result" else None
        work = RecordedWork()
        cancellation = prepare(scheduler, work, deadline_ns=clock.now_ns + MS)
        if end == "cancelled":
            cancellation.cancel()
        if end == "deadline":
            clock.advance(MS)
        work.status()
        if blocker is not None:
            blocker.go.set()
        scheduler.close()
        reference = weakref.ref(work)
        del work
        assert reference() is None
    finally:
        gc.enable()
    assert not cancellation._listeners


# ---- Random preparations ---------------------------------------------------------------------------------


def _random_step(rng: random.Random) -> Callable[[Check], None]:
    checks = rng.randrange(4)

    def step(check: Check) -> None:
        for _ in range(checks):
            check()

    return step


def _prepare_randomly(scheduler: Scheduler, session: int, works: list[RecordedWork]) -> None:
    """Launch preparations of one session, some with deadlines, and cancel some of them."""
    rng = random.Random(session)
    pending: list[Cancellation] = []
    for _ in range(150):
        work = RecordedWork(_random_step(rng))
        deadline_ns = rng.choice((OMITTED, OMITTED, 0, now_ns() + rng.randrange(2 * MS)))
        try:
            pending.append(prepare(scheduler, work, session, rng.choice(list(Priority)), deadline_ns))
        except HalError as error:
            assert error.limit == "queued_preparations"
            assert work.events == []
        else:
            works.append(work)
        if rng.random() < 0.4 and pending:
            pending.pop(rng.randrange(len(pending))).cancel()


@pytest.mark.parametrize("threads", [1, 3])
def test_random_preparations_are_notified_once(threads: int) -> None:
    scheduler = Scheduler(executions=1, preparations=threads, queues=QueueLimits(20, 10))
    works: list[list[RecordedWork]] = [[] for _ in range(6)]
    clients = [
        threading.Thread(target=_prepare_randomly, args=(scheduler, session, works[session]))
        for session in range(len(works))
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    scheduler.close()
    for events in (work.events for of_session in works for work in of_session):
        assert (events.count("notify"), events.count("close")) == (1, 1)
    assert (scheduler.preparations.waiting, scheduler.preparations._owners) == (0, {})
    assert scheduler.preparations._free == threads
