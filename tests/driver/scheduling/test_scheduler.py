"""Threads of a device: the order of preparations, and what remains when they are closed."""

import threading
from contextlib import closing

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Priority
from nnhal_driver.scheduling.scheduler import QueueLimits, Scheduler, Workers
from tests.concurrency import new_threads
from tests.driver.blocking_backend import TIMEOUT_S, until
from tests.driver.scheduling.preparations import RecordedWork, Result, block, prepare

QUEUES = QueueLimits(preparations=3, executions=10)


def test_preparations_of_one_owner_run_by_priority_and_a_full_queue_rejects() -> None:
    order: list[int] = []
    with closing(Scheduler(executions=1, preparations=1, queues=QUEUES)) as scheduler:
        blocker = block(scheduler)
        for priority in (Priority.LOW, Priority.HIGH, Priority.MEDIUM):
            work = RecordedWork(lambda check, p=priority: order.append(p))  # type: ignore[misc]
            prepare(scheduler, work, priority=priority)
        with pytest.raises(HalError) as caught:
            prepare(scheduler, RecordedWork(), priority=Priority.HIGH)
        blocker.go.set()
    assert order == [Priority.HIGH, Priority.MEDIUM, Priority.LOW]
    error = caught.value
    assert (error.status, error.limit) == (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "queued_preparations")


def test_callback_that_fails_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    class FailingWork(RecordedWork):
        def notify(self, result: Result) -> None:
            raise SystemExit("broken callback")

    done = RecordedWork()
    with closing(Scheduler(executions=1, preparations=1, queues=QUEUES)) as scheduler:
        prepare(scheduler, FailingWork())
        prepare(scheduler, done)
        assert done.status() == ErrorStatus.NONE
    assert "broken callback" in caplog.text


def test_close_ends_the_threads_and_rejects_more() -> None:
    before = threading.enumerate()
    scheduler = Scheduler(executions=1, preparations=3, queues=QUEUES)
    assert len(new_threads(before)) == 4, "three preparation threads and one for the timers"
    scheduler.close()
    scheduler.close()
    assert not new_threads(before)
    with pytest.raises(HalError, match="shutting down"):
        prepare(scheduler, RecordedWork())


def test_close_finishes_queued_jobs() -> None:
    done: list[int] = []
    scheduler = Scheduler(executions=1, preparations=2, queues=QueueLimits(100, 100))
    for number in range(100):
        prepare(scheduler, RecordedWork(lambda check, n=number: done.append(n)))  # type: ignore[misc]
    scheduler.close()
    assert sorted(done) == list(range(100))


def test_worker_threads_start_on_demand_and_end_when_closed() -> None:
    before, workers = threading.enumerate(), Workers(3)
    go, running = threading.Event(), threading.Semaphore(0)

    def job() -> None:
        running.release()
        go.wait(TIMEOUT_S)

    for number in range(5):
        workers.submit(job)
        assert len(new_threads(before)) == min(number + 1, 3)
    go.set()
    workers.close()
    assert not new_threads(before)
    assert running._value == 5
    with pytest.raises(HalError, match="shutting down"):
        workers.submit(job)


def test_worker_job_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("broken job")

    workers = Workers(1)
    workers.submit(fail)
    workers.close()
    assert "broken job" in caplog.text


def test_job_without_a_thread_is_rejected_and_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers, done = Workers(1), []
    with monkeypatch.context() as patched, pytest.raises(HalError, match="not enough memory for a thread") as caught:
        patched.setattr(threading.Thread, "start", fail)
        workers.submit(lambda: done.append("rejected"))
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    workers.submit(lambda: done.append("accepted"))
    assert until(lambda: bool(done))
    workers.close()
    assert done == ["accepted"]


def test_jobs_have_threads_of_their_own_while_others_wait() -> None:
    with closing(Workers(1)) as workers:
        go, ran = threading.Event(), threading.Event()

        def wait() -> None:
            go.wait(TIMEOUT_S)

        workers.submit(wait)
        before = threading.enumerate()
        workers.begin_wait()
        workers.submit(ran.set)
        assert ran.wait(TIMEOUT_S)
        assert until(lambda: not new_threads(before)), "a thread remains"
        go.set()
    with pytest.raises(HalError, match="shutting down"):
        workers.submit(ran.set)
