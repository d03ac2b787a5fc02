"""Who runs when, and that nothing is left behind."""

import threading
import time

import pytest

from driver.cancellation import Cancellation
from driver.deadline import NO_DEADLINE, Deadline, now_ns
from driver.gate import Claim, Gate, Turn
from driver.run_times import RunTimes
from driver.scheduler import Queues, Scheduler, Workers
from driver.timers import Timers
from nnhal.errors import HalError
from nnhal.types import ErrorStatus, OperandType, OperationType, Priority
from tests.driver.held import TWICE, Bench, Sum, bench, until
from tests.driver.one_operation import int32, model_of, prepare, tensor
from tests.driver.test_control_flow import counts, less_than, loop

QUEUES = Queues(preparations=10, executions=10)


def waiting(gate: Gate, count: int) -> None:
    """Waits until `count` callers stand before the gate."""
    end = time.monotonic() + 5
    while gate.waiting != count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_turns_come_by_priority_then_deadline_then_arrival() -> None:
    gate = Gate(1, 100)
    soon, later = Deadline(now_ns() + 10**11), Deadline(now_ns() + 10**12)
    callers = [
        (Priority.LOW, NO_DEADLINE, "low"),
        (Priority.MEDIUM, NO_DEADLINE, "medium, no deadline"),
        (Priority.MEDIUM, later, "medium, later"),
        (Priority.MEDIUM, soon, "medium, soon"),
        (Priority.MEDIUM, soon, "medium, soon, came after"),
        (Priority.HIGH, NO_DEADLINE, "high"),
    ]
    order: list[str] = []

    def run(priority: int, deadline: Deadline, name: str) -> None:
        with gate.pass_(Claim(priority, deadline)):
            order.append(name)

    threads = []
    with gate.pass_(Claim(Priority.MEDIUM, NO_DEADLINE)):
        for i, caller in enumerate(callers):
            threads.append(threading.Thread(target=run, args=caller))
            threads[-1].start()
            waiting(gate, i + 1)
    for thread in threads:
        thread.join()
    assert order == [
        "high",
        "medium, soon",
        "medium, soon, came after",
        "medium, later",
        "medium, no deadline",
        "low",
    ]


def test_never_more_at_once_than_the_gate_is_wide() -> None:
    gate = Gate(2, 100)
    inside, most = 0, 0
    lock = threading.Lock()

    def run() -> None:
        nonlocal inside, most
        for _ in range(50):
            with gate.pass_(Claim(Priority.MEDIUM, NO_DEADLINE)):
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.0002)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2


def test_a_caller_whose_deadline_passes_gives_up_and_harms_nobody() -> None:
    gate = Gate(1, 100)
    with gate.pass_(Claim(Priority.MEDIUM, NO_DEADLINE)):
        with pytest.raises(HalError) as caught, gate.pass_(Claim(Priority.HIGH, Deadline(now_ns() + 20_000_000))):
            pytest.fail("the gate was taken")
        assert gate.waiting == 0
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
    with gate.pass_(Claim(Priority.LOW, Deadline(now_ns() + 10**9))):
        pass


def test_an_error_inside_frees_the_turn() -> None:
    gate = Gate(1, 100)
    with pytest.raises(RuntimeError), gate.pass_(Claim(Priority.MEDIUM, NO_DEADLINE)):
        raise RuntimeError
    with gate.pass_(Claim(Priority.MEDIUM, Deadline(now_ns() + 10**9))):
        pass


def test_jobs_run_by_priority() -> None:
    order: list[int] = []
    busy, go = threading.Event(), threading.Event()
    with Scheduler(executions=1, preparations=1, queues=QUEUES) as scheduler:

        def block() -> None:
            busy.set()
            go.wait(5)

        scheduler.prepare(Priority.MEDIUM, NO_DEADLINE, block)
        assert busy.wait(5)
        for priority in (Priority.LOW, Priority.HIGH, Priority.MEDIUM):
            scheduler.prepare(priority, NO_DEADLINE, lambda p=priority: order.append(p))  # type: ignore[misc]
        go.set()
    assert order == [Priority.HIGH, Priority.MEDIUM, Priority.LOW]


def test_a_job_that_fails_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("broken job")

    with Scheduler(executions=1, preparations=1, queues=QUEUES) as scheduler:
        scheduler.prepare(Priority.MEDIUM, NO_DEADLINE, fail)
        scheduler.prepare(Priority.MEDIUM, NO_DEADLINE, done.set)
        assert done.wait(5)
    assert "broken job" in caplog.text


def test_closing_ends_the_threads_and_refuses_more() -> None:
    before = threading.active_count()
    scheduler = Scheduler(executions=1, preparations=3, queues=QUEUES)
    assert threading.active_count() == before + 4, "three that prepare, one that keeps the time"
    scheduler.close()
    assert threading.active_count() == before
    with pytest.raises(HalError, match="shutting down"):
        scheduler.prepare(Priority.MEDIUM, NO_DEADLINE, lambda: None)


def test_the_longest_deadline_does_not_overflow() -> None:
    deadline = Deadline(2**63 - 1)
    assert not deadline.passed()
    remaining = deadline.remaining_s()
    assert remaining is not None
    assert not threading.Event().wait(min(remaining, 0.001))


# ---- Deadlines that save work ---------------------------------------------------------------------------


def test_six_that_expire_in_the_queue_and_a_live_one_behind_them() -> None:
    with bench() as held:
        blocker = threading.Thread(target=held.prepared.execute_synchronously, args=(Sum.of(0).request,))
        blocker.start()
        assert until(lambda: held.hold.started == [0])
        deadline = now_ns() + 50_000_000
        statuses: list[int] = []
        dead = [
            threading.Thread(target=lambda i=i: statuses.append(refusal(held, Sum.of(i), deadline)))
            for i in range(1, 7)
        ]
        live = threading.Thread(target=held.prepared.execute_synchronously, args=(Sum.of(9).request,))
        for number, thread in enumerate((*dead, live), 1):
            thread.start()
            waiting(held.device._scheduler.gate, number)
        for thread in dead:
            thread.join()
        assert statuses == [ErrorStatus.MISSED_DEADLINE_TRANSIENT] * 6
        waiting(held.device._scheduler.gate, 1)
        held.hold.go.set()
        for thread in (blocker, live):
            thread.join()
        counts = held.device.execution_counts
        assert held.hold.started == [0, 9]
        assert (counts.started, counts.expired, counts.wasted) == (2, 6, 0)


def refusal(held: Bench, work: Sum, deadline_ns: int) -> int:
    with pytest.raises(HalError) as caught:
        held.prepared.execute_synchronously(work.request, deadline_ns=deadline_ns)
    return caught.value.status


def test_the_live_one_does_not_wait_until_the_dead_have_noticed() -> None:
    """Their own threads and timers are not needed for it: whoever leaves passes them over."""
    gate = Gate(1, 100)
    first = Turn(Claim(Priority.MEDIUM))
    assert gate.enter(first)
    told: list[Turn] = []
    dead = [Turn(Claim(Priority.HIGH, Deadline(now_ns() + 5_000_000)), told.append) for _ in range(6)]
    live = Turn(Claim(Priority.LOW), told.append)
    for turn in (*dead, live):
        assert not gate.enter(turn)
    time.sleep(0.01)
    gate.leave(first)
    assert told == [*dead, live]
    assert [turn.error is None for turn in told] == [False] * 6 + [True]
    assert (gate.counts.expired, gate.counts.started, gate.waiting) == (6, 2, 0)


def test_what_cannot_be_done_in_time_is_refused_at_once() -> None:
    with bench() as held:
        for _ in range(3):
            timer = threading.Timer(0.05, held.hold.go.set)
            timer.start()
            held.prepared.execute_synchronously(Sum.of(1).request)
            timer.join()
            held.hold.go.clear()
        assert held.hold.started == [1, 1, 1]
        assert refusal(held, Sum.of(2), now_ns() + 30_000_000) == ErrorStatus.MISSED_DEADLINE_TRANSIENT
        with pytest.raises(HalError, match="no recent execution of this model took less than"):
            held.fenced(Sum.of(3).request, deadline_ns=now_ns() + 30_000_000)
        assert held.hold.started == [1, 1, 1]
        assert held.device.execution_counts.refused == 1, "the fenced one never came to the gate"
        held.hold.go.set()
        held.prepared.execute_synchronously(Sum.of(4).request, deadline_ns=now_ns() + 10**10)


def test_nothing_is_known_of_a_model_that_has_hardly_run() -> None:
    times = RunTimes()
    times.add(1000)
    times.add(10)
    assert times.least_ns() == 0
    times.add(100)
    assert times.least_ns() == 10


def test_old_times_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    times = RunTimes()
    for _ in range(3):
        times.add(1000)
    monkeypatch.setattr("driver.run_times.now_ns", lambda: now_ns() + 11 * 10**9)
    assert times.least_ns() == 0


def test_work_that_is_late_when_done_was_wasted() -> None:
    gate = Gate(1, 100)
    with gate.pass_(Claim(Priority.MEDIUM, Deadline(now_ns() + 5_000_000))):
        time.sleep(0.01)
    with gate.pass_(Claim(Priority.MEDIUM, Deadline(now_ns() + 10**9))):
        pass
    counts = gate.counts
    assert (counts.started, counts.wasted) == (2, 1)
    assert counts.wasted_ns >= 10_000_000


def test_a_cancelled_wait_ends_at_once() -> None:
    gate, cancellation = Gate(1, 100), Cancellation()
    with gate.pass_(Claim(Priority.MEDIUM)):
        timer = threading.Timer(0.02, cancellation.cancel)
        timer.start()
        with pytest.raises(HalError, match="cancelled"), gate.pass_(Claim(Priority.MEDIUM), cancellation):
            pytest.fail("the gate was taken")
        timer.join()
        assert gate.waiting == 0


# ---- Fair between owners --------------------------------------------------------------------------------


def order(claims: list[Claim], cost_s: float = 0.0) -> list[object]:
    """The owners (and deadlines) of executions that all wait before a gate of width 1, in the order of their turns."""
    gate = Gate(1, 1000)
    first = Turn(Claim(Priority.MEDIUM, owner="blocker"))
    gate.enter(first)
    told: list[Turn] = []
    for claim in claims:
        gate.enter(Turn(claim, told.append))
    gate.leave(first)
    done = 0
    while done < len(told):
        if cost_s:
            time.sleep(cost_s)
        gate.leave(told[done])
        done += 1
    assert gate._owners == {}
    return [turn.claim.owner for turn in told]


def test_owners_take_turns_however_much_one_of_them_asks_for() -> None:
    claims = [Claim(Priority.MEDIUM, owner="greedy") for _ in range(20)]
    claims += [Claim(Priority.MEDIUM, owner="modest") for _ in range(3)]
    turns = order(claims, cost_s=0.002)
    assert "".join("m" if owner == "modest" else "g" for owner in turns[:8]).count("m") == 3


def test_priorities_do_not_count_between_owners() -> None:
    claims = [Claim(Priority.HIGH, owner="pushy") for _ in range(20)]
    claims += [Claim(Priority.LOW, owner="modest") for _ in range(3)]
    assert order(claims, cost_s=0.002)[:8].count("modest") == 3


def test_an_owner_who_was_away_gains_nothing_by_it() -> None:
    """Else it could shut all others out for as long as it was away."""
    gate = Gate(1, 1000)
    told: list[Turn] = []
    busy = Turn(Claim(Priority.MEDIUM, owner="busy"))
    gate.enter(busy)
    for _ in range(8):
        gate.enter(Turn(Claim(Priority.MEDIUM, owner="busy"), told.append))
    for _ in range(4):
        time.sleep(0.005)
        gate.leave(busy)
        busy = told[-1]
    for _ in range(4):
        gate.enter(Turn(Claim(Priority.MEDIUM, owner="new"), told.append))
    for _ in range(6):
        time.sleep(0.005)
        gate.leave(told[-1])
    assert "busy" in [turn.claim.owner for turn in told[4:8]]


def test_one_owner_uses_all_that_is_free() -> None:
    gate = Gate(3, 10)
    turns = [Turn(Claim(Priority.MEDIUM, owner="only")) for _ in range(3)]
    assert all(gate.enter(turn) for turn in turns)
    for turn in turns:
        gate.leave(turn)
    assert gate._owners == {}


# ---- Timers and workers ---------------------------------------------------------------------------------


def test_timers_call_in_order_and_cancelled_ones_never() -> None:
    timers, called = Timers("test"), []
    base = now_ns() + 30_000_000
    made = [timers.at(base + i * 1_000_000, lambda i=i: called.append(i)) for i in reversed(range(10))]  # type: ignore[misc]
    for timer in made[::2]:
        timer.cancel()
        timer.cancel()
    assert until(lambda: len(called) == 5)
    assert called == [0, 2, 4, 6, 8]
    timers.close()


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers("test")
    for _ in range(10_000):
        timers.at(now_ns() + 10**15, lambda: None).cancel()
    assert len(timers._heap) < 10
    timers.close()


def test_a_timer_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    timers, called = Timers("test"), []

    def fail() -> None:
        raise RuntimeError("broken timer")

    timers.at(0, fail)
    timers.at(0, lambda: called.append(1))
    assert until(lambda: called == [1])
    assert "broken timer" in caplog.text
    timers.close()


def test_workers_are_made_as_needed_and_end_when_closed() -> None:
    before, workers = threading.active_count(), Workers(3)
    go, running = threading.Event(), threading.Semaphore(0)

    def job() -> None:
        running.release()
        go.wait(5)

    for number in range(5):
        workers.submit(job)
        assert threading.active_count() == before + min(number + 1, 3)
    go.set()
    workers.close()
    assert threading.active_count() == before
    assert running._value == 5
    with pytest.raises(HalError, match="shutting down"):
        workers.submit(job)


def test_past_times_tell_nothing_where_the_work_depends_on_values() -> None:
    """A WHILE, and an input of unknown shape: the next execution may be far shorter than all before."""
    unknown = tensor(OperandType.TENSOR_FLOAT32, (0,))
    grows = model_of(OperationType.ADD, [(unknown, 0), (unknown, 0), int32(0)], [unknown], constants=False)
    soon = Deadline(now_ns() + 10**9)
    for model, known in ((TWICE, True), (grows, False), (loop(less_than(), counts()), False)):
        prepared = prepare(model).prepared_model
        assert prepared is not None
        for _ in range(3):
            prepared.times.add(10**12)
        assert (prepared.claim(soon, None).needed_ns == 10**12) == known
        assert prepared.claim(NO_DEADLINE, None).needed_ns == 0
