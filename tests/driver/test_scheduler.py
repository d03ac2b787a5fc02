"""Who runs when, and that nothing is left behind."""

import threading
import time

import pytest

from driver.deadline import NO_DEADLINE, Deadline, now_ns
from driver.scheduler import Gate, Queues, Scheduler
from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Priority

QUEUES = Queues(preparations=10, executions=10)


def waiting(gate: Gate, count: int) -> None:
    """Waits until `count` callers stand before the gate."""
    end = time.monotonic() + 5
    while len(gate._waiting) != count:
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
        with gate.pass_(priority, deadline):
            order.append(name)

    threads = []
    with gate.pass_(Priority.MEDIUM, NO_DEADLINE):
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
            with gate.pass_(Priority.MEDIUM, NO_DEADLINE):
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
    with gate.pass_(Priority.MEDIUM, NO_DEADLINE):
        with pytest.raises(HalError) as caught, gate.pass_(Priority.HIGH, Deadline(now_ns() + 20_000_000)):
            pytest.fail("the gate was taken")
        assert gate._waiting == []
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
    with gate.pass_(Priority.LOW, Deadline(now_ns() + 10**9)):
        pass


def test_an_error_inside_frees_the_turn() -> None:
    gate = Gate(1, 100)
    with pytest.raises(RuntimeError), gate.pass_(Priority.MEDIUM, NO_DEADLINE):
        raise RuntimeError
    with gate.pass_(Priority.MEDIUM, Deadline(now_ns() + 10**9)):
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
    assert threading.active_count() == before + 3
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
