"""Fenced executions: launch, failure, deadlines and cancellation."""

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from nnhal.errors import MISSED_DEADLINE, HalError
from nnhal.types import (
    OMITTED,
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    FenceState,
    Memory,
    RequestArgument,
    ReturnedPool,
    TokenValuePair,
)
from nnhal_driver.execution.fence import Fence
from nnhal_driver.execution.fenced_execution import FencedExecution
from tests.concurrency import new_threads
from tests.driver.blocking_backend import BlockingDevice, Sum, blocking_device, request_over, until
from tests.driver.clock import MS, FakeClock

NONE, FAILED = ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE


@pytest.fixture
def blocking() -> Iterator[BlockingDevice]:
    with blocking_device() as device:
        yield device


def status_of(execution: FencedExecution) -> int:
    """Wait for the end of an execution. Return its status."""
    assert until(lambda: execution.fence.state != FenceState.ACTIVE)
    assert (execution.fence.state == FenceState.SIGNALED) == (execution.info().status == NONE)
    return execution.info().status


# ---- Launching ------------------------------------------------------------------------------------------


def test_launch_returns_before_the_work_is_done(blocking: BlockingDevice) -> None:
    work = Sum.of(1, 2)
    execution = blocking.fenced(work.request)
    assert until(lambda: blocking.barrier.started == [1])
    assert execution.fence.state == FenceState.ACTIVE
    assert execution.info().status == FAILED
    assert "still running" in execution.info().reason
    blocking.barrier.go.set()
    assert status_of(execution) == NONE
    np.testing.assert_array_equal(work.out, [3, 3])


def test_outputs_are_written_before_the_fence_signals(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    for i in range(200):
        work = Sum.of(i, 1)
        seen: list[float] = []
        execution = blocking.fenced(work.request)
        execution.fence.add_listener(lambda _, w=work, s=seen: s.append(w.out[0]))  # type: ignore[misc]
        assert status_of(execution) == NONE
        assert until(lambda s=seen: bool(s))  # type: ignore[misc]
        assert seen == [i + 1]


def test_execution_starts_when_all_fences_have_signalled_and_no_thread_waits(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    first, second = Fence(), Fence()
    works = [Sum.of(i, 1) for i in range(50)]
    before = threading.enumerate()
    executions = [blocking.fenced(w.request, [first, second, first]) for w in works]
    first.signal()
    assert blocking.admission.running == blocking.admission.waiting == 0
    assert not new_threads(before)
    second.signal()
    assert [status_of(execution) for execution in executions] == [NONE] * 50
    assert [work.out[0] for work in works] == [i + 1 for i in range(50)]
    assert len(new_threads(before)) == 1, "the one worker"


def test_chain_of_executions_passes_values_through_memory(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    start, values = Fence(), [np.full(2, i, np.float32) for i in range(101)]
    ones = np.ones(2, np.float32)
    fence = start
    executions = []
    for before, after in pairwise(values):
        pools = [Memory.of(array, writable=True) for array in (before, ones, after)]
        executions.append(blocking.fenced(request_over(pools), [fence]))
        fence = executions[-1].fence
    values[0][:] = 7
    start.signal()
    assert status_of(executions[-1]) == NONE
    assert values[-1].tolist() == [107, 107]


INVALID = {
    "returned pool": lambda w: replace(w.request, pools=(*w.request.pools[:2], ReturnedPool(8))),
    "read-only memory": lambda w: replace(w.request, pools=(*w.request.pools[:2], Memory.of(bytes(8)))),
    "too small": lambda w: replace(w.request, outputs=(RequestArgument(False, DataLocation(2, 0, 4)),)),
    "no such pool": lambda w: replace(w.request, outputs=(RequestArgument(False, DataLocation(3, 0, 8)),)),
}


@pytest.mark.parametrize("fault", INVALID)
def test_invalid_requests_are_rejected_at_the_launch(blocking: BlockingDevice, fault: str) -> None:
    with pytest.raises(HalError) as caught:
        blocking.fenced(INVALID[fault](Sum.of(1)))
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("deadline", "duration", "config", "rule"),
    [
        (-2, OMITTED, ExecutionConfig(), "V-EXECARG-01"),
        (OMITTED, -2, ExecutionConfig(), "V-EXECARG-01"),
        (OMITTED, OMITTED, ExecutionConfig(loop_timeout_duration_ns=-2), "V-EXECARG-02"),
        (
            OMITTED,
            OMITTED,
            ExecutionConfig(execution_hints=(TokenValuePair(1, b""), TokenValuePair(1, b""))),
            "V-EXECARG-05",
        ),
    ],
)
def test_invalid_arguments_are_rejected_at_the_launch(
    blocking: BlockingDevice, deadline: int, duration: int, config: ExecutionConfig, rule: str
) -> None:
    with pytest.raises(HalError) as caught:
        blocking.fenced(Sum.of(1).request, (), config, deadline, duration)
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, rule)
    assert blocking.barrier.started == []


# ---- Failing --------------------------------------------------------------------------------------------


def test_fence_in_error_at_the_launch_is_an_invalid_argument(blocking: BlockingDevice) -> None:
    good, bad = Fence(), Fence()
    bad.signal(error=True)
    with pytest.raises(HalError, match="fence 1 of wait_for is in error") as caught:
        blocking.fenced(Sum.of(1).request, [good, bad])
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-EXECARG-04")


def test_fence_that_ends_in_error_later_ends_all_that_follow(blocking: BlockingDevice) -> None:
    first, never = Fence(), Fence()
    executions = [blocking.fenced(Sum.of(1).request, [first, never])]
    for _ in range(2000):
        executions.append(blocking.fenced(Sum.of(1).request, [executions[-1].fence]))
    first.signal(error=True)
    assert {status_of(execution) for execution in executions} == {FAILED}
    assert blocking.barrier.started == []
    assert never._listeners == {}


def test_execution_that_fails_sets_its_fence_to_error(
    blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "a value that the operation does not take")

    monkeypatch.setattr(blocking.barrier, "wait", fail)
    execution = blocking.fenced(Sum.of(1).request)
    assert status_of(execution) == FAILED, "INVALID_ARGUMENT is not a status of an execution that was launched"
    assert "does not take" in execution.info().reason


def test_internal_error_sets_the_fence_to_error(
    blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(blocking.barrier, "wait", fail)
    assert status_of(blocking.fenced(Sum.of(1).request)) == FAILED
    assert "a defect" in caplog.text
    monkeypatch.undo()
    blocking.barrier.go.set()
    assert status_of(blocking.fenced(Sum.of(1).request)) == NONE, "the slot was released"


def test_model_and_memory_are_released_at_the_end(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    execution = blocking.fenced(Sum.of(1).request)
    assert status_of(execution) == NONE
    assert execution._pending is None
    assert execution._on_done is None


# ---- Time -----------------------------------------------------------------------------------------------


def test_deadline_in_the_past_is_rejected_at_the_launch(blocking: BlockingDevice, clock: FakeClock) -> None:
    with pytest.raises(HalError) as caught:
        blocking.fenced(Sum.of(1).request, [Fence()], deadline_ns=clock.now_ns - 1)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_deadline_ends_the_wait_for_a_fence(blocking: BlockingDevice, clock: FakeClock) -> None:
    fence = Fence()
    execution = blocking.fenced(Sum.of(1).request, [fence], deadline_ns=clock.now_ns + MS)
    assert execution.fence.state == FenceState.ACTIVE
    clock.advance(MS)
    assert status_of(execution) in MISSED_DEADLINE
    assert fence._listeners == {}
    fence.signal()
    assert blocking.barrier.started == []


def test_deadline_ends_the_wait_for_a_slot(blocking: BlockingDevice, clock: FakeClock) -> None:
    running = blocking.fenced(Sum.of(1).request)
    assert until(lambda: blocking.barrier.started == [1])
    late = blocking.fenced(Sum.of(2).request, deadline_ns=clock.now_ns + MS)
    clock.advance(MS)
    assert status_of(late) in MISSED_DEADLINE
    assert running.fence.state == FenceState.ACTIVE
    assert blocking.admission.waiting == 0
    assert blocking.barrier.started == [1]


def test_deadline_ends_the_work_between_operations(blocking: BlockingDevice, clock: FakeClock) -> None:
    execution = blocking.fenced(Sum.of(1).request, deadline_ns=clock.now_ns + MS)
    assert until(lambda: blocking.barrier.started == [1])
    clock.advance(MS)
    assert status_of(execution) in MISSED_DEADLINE


def test_duration_begins_when_the_fences_have_signalled(blocking: BlockingDevice, clock: FakeClock) -> None:
    fence = Fence()
    execution = blocking.fenced(Sum.of(1).request, [fence], duration_ns=MS)
    clock.advance(2 * MS)
    assert execution.fence.state == FenceState.ACTIVE
    fence.signal()
    assert until(lambda: blocking.barrier.started == [1])
    clock.advance(MS)
    assert status_of(execution) in MISSED_DEADLINE


@pytest.mark.parametrize(("deadline_ns", "duration_ns"), [(MS, 10**12), (10**12, MS)])
def test_earlier_of_deadline_and_duration_counts(
    blocking: BlockingDevice, clock: FakeClock, deadline_ns: int, duration_ns: int
) -> None:
    fence = Fence()
    deadline = clock.now_ns + deadline_ns
    execution = blocking.fenced(Sum.of(1).request, [fence], deadline_ns=deadline, duration_ns=duration_ns)
    fence.signal()
    clock.advance(MS)
    assert status_of(execution) in MISSED_DEADLINE


def test_longest_times_do_not_overflow(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    longest = 2**63 - 1
    fence = Fence()
    execution = blocking.fenced(Sum.of(1).request, [fence], deadline_ns=longest, duration_ns=longest)
    fence.signal()
    assert status_of(execution) == NONE


def test_timings_count_from_the_launch_and_from_the_fences(
    blocking: BlockingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(step=MS)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(ticks))
    blocking.barrier.go.set()
    fence = Fence()
    measured = ExecutionConfig(measure_timing=True)
    execution = blocking.fenced(Sum.of(1).request, [fence], measured)
    for _ in range(30):
        time.perf_counter_ns()
    fence.signal()
    assert status_of(execution) == NONE
    launched, fenced = execution.info().timing_launched, execution.info().timing_fenced
    assert launched.time_on_device_ns == fenced.time_on_device_ns >= 0
    assert fenced.time_on_device_ns <= fenced.time_in_driver_ns
    assert fenced.time_in_driver_ns + 30 * MS <= launched.time_in_driver_ns
    plain = blocking.fenced(Sum.of(1).request)
    status_of(plain)
    assert plain.info().timing_launched.time_on_device_ns == plain.info().timing_fenced.time_in_driver_ns == OMITTED


# ---- Cancelling -----------------------------------------------------------------------------------------


def test_cancel_while_it_waits_for_a_fence(blocking: BlockingDevice) -> None:
    fence = Fence()
    execution = blocking.fenced(Sum.of(1).request, [fence])
    execution.cancel()
    assert execution.fence.state == FenceState.ERROR
    assert "cancelled" in execution.info().reason
    assert fence._listeners == {}


def test_cancel_while_it_waits_for_a_slot_and_while_it_runs(blocking: BlockingDevice) -> None:
    running = blocking.fenced(Sum.of(1).request)
    assert until(lambda: blocking.barrier.started == [1])
    queued = blocking.fenced(Sum.of(2).request)
    queued.cancel()
    assert queued.fence.state == FenceState.ERROR
    assert blocking.admission.waiting == 0
    running.cancel()
    assert status_of(running) == FAILED
    blocking.barrier.go.set()
    assert status_of(blocking.fenced(Sum.of(3).request)) == NONE
    assert blocking.barrier.started == [1, 3]


def test_cancel_after_the_end_changes_nothing(blocking: BlockingDevice) -> None:
    blocking.barrier.go.set()
    execution = blocking.fenced(Sum.of(1).request)
    assert status_of(execution) == NONE
    execution.cancel()
    assert (execution.fence.state, execution.info().status) == (FenceState.SIGNALED, NONE)


def test_full_queue_rejects() -> None:
    with blocking_device(queue=1) as blocking:
        running = blocking.fenced(Sum.of(1).request)
        assert until(lambda: blocking.barrier.started == [1])
        blocking.fenced(Sum.of(2).request)
        with pytest.raises(HalError, match="queued_executions") as caught:
            blocking.fenced(Sum.of(3).request)
        assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        fence = Fence()
        later = blocking.fenced(Sum.of(4).request, [fence])
        fence.signal()
        assert status_of(later) == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        blocking.barrier.go.set()
        assert status_of(running) == NONE
