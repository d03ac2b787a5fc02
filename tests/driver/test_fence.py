"""Fences, and executions that wait for them."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from driver.deadline import now_ns
from driver.fence import Fence
from driver.fenced import FencedExecution
from nnhal.enums import FenceState
from nnhal.errors import HalError
from nnhal.types import (
    OMITTED,
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    Memory,
    RequestArgument,
    ReturnedPool,
    TokenValuePair,
)
from tests.driver.held import Bench, Sum, bench, request_over, until

NONE, FAILED = ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE
MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)


@pytest.fixture
def held() -> Iterator[Bench]:
    with bench() as made:
        yield made


def over(execution: FencedExecution) -> int:
    """Waits for the end of an execution; gives its status."""
    assert until(lambda: execution.fence.state != FenceState.ACTIVE)
    assert (execution.fence.state == FenceState.SIGNALED) == (execution.info().status == NONE)
    return execution.info().status


# ---- Fences ---------------------------------------------------------------------------------------------


def test_a_fence_ends_once_and_tells_everybody_once() -> None:
    fence = Fence()
    heard: list[object] = []
    listeners: list[Callable[[Fence], None]] = [lambda f, i=i: heard.append((i, f.state)) for i in range(3)]  # type: ignore[misc]
    for listener in listeners:
        fence.when_over(listener)
    fence.forget(listeners[1])
    assert (fence.state, heard) == (FenceState.ACTIVE, [])
    assert fence.end()
    assert not fence.end(error=True)
    assert (fence.state, heard) == (FenceState.SIGNALED, [(0, FenceState.SIGNALED), (2, FenceState.SIGNALED)])
    fence.when_over(listeners[1])
    assert heard[-1] == (1, FenceState.SIGNALED)


def test_a_listener_that_fails_does_not_keep_the_others_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    fence = Fence()
    heard: list[object] = []

    def fail(_: Fence) -> None:
        raise RuntimeError("broken listener")

    fence.when_over(fail)
    fence.when_over(heard.append)
    assert fence.end(error=True)
    assert heard == [fence]
    assert "broken listener" in caplog.text


def test_a_long_chain_of_fences_does_not_exhaust_the_stack() -> None:
    chain = [Fence() for _ in range(20_000)]
    for one, following in pairwise(chain):
        one.when_over(lambda f, n=following: n.end(error=f.state == FenceState.ERROR))  # type: ignore[misc]
    chain[0].end(error=True)
    assert chain[-1].state == FenceState.ERROR


# ---- Launching ------------------------------------------------------------------------------------------


def test_the_call_returns_while_the_work_is_still_to_be_done(held: Bench) -> None:
    work = Sum.of(1, 2)
    execution = held.fenced(work.request)
    assert until(lambda: held.hold.started == [1])
    assert execution.fence.state == FenceState.ACTIVE
    assert execution.info().status == FAILED
    assert "still running" in execution.info().reason
    held.hold.go.set()
    assert over(execution) == NONE
    np.testing.assert_array_equal(work.out, [3, 3])


def test_outputs_are_there_before_the_fence_signals(held: Bench) -> None:
    held.hold.go.set()
    for i in range(200):
        work = Sum.of(i, 1)
        seen: list[float] = []
        execution = held.fenced(work.request)
        execution.fence.when_over(lambda _, w=work, s=seen: s.append(w.out[0]))  # type: ignore[misc]
        assert over(execution) == NONE
        assert until(lambda s=seen: bool(s))  # type: ignore[misc]
        assert seen == [i + 1]


def test_it_starts_when_all_fences_have_signalled_and_no_thread_waits(held: Bench) -> None:
    held.hold.go.set()
    first, second = Fence(), Fence()
    works = [Sum.of(i, 1) for i in range(50)]
    before = threading.active_count()
    executions = [held.fenced(w.request, [first, second, first]) for w in works]
    first.end()
    time.sleep(0.02)
    assert held.hold.started == []
    assert threading.active_count() == before
    second.end()
    assert [over(execution) for execution in executions] == [NONE] * 50
    assert [work.out[0] for work in works] == [i + 1 for i in range(50)]
    assert threading.active_count() == before + 1, "the one worker"


def test_a_chain_goes_through_memory(held: Bench) -> None:
    held.hold.go.set()
    start, values = Fence(), [np.full(2, i, np.float32) for i in range(101)]
    ones = np.ones(2, np.float32)
    fence = start
    executions = []
    for before, after in pairwise(values):
        pools = [Memory.of(array, writable=True) for array in (before, ones, after)]
        executions.append(held.fenced(request_over(pools), [fence]))
        fence = executions[-1].fence
    values[0][:] = 7
    start.end()
    assert over(executions[-1]) == NONE
    assert values[-1].tolist() == [107, 107]


INVALID = {
    "returned pool": lambda w: replace(w.request, pools=(*w.request.pools[:2], ReturnedPool(8))),
    "read-only memory": lambda w: replace(w.request, pools=(*w.request.pools[:2], Memory.of(bytes(8)))),
    "too small": lambda w: replace(w.request, outputs=(RequestArgument(False, DataLocation(2, 0, 4)),)),
    "no such pool": lambda w: replace(w.request, outputs=(RequestArgument(False, DataLocation(3, 0, 8)),)),
}


@pytest.mark.parametrize("fault", INVALID)
def test_invalid_requests_are_refused_at_the_launch(held: Bench, fault: str) -> None:
    with pytest.raises(HalError) as caught:
        held.fenced(INVALID[fault](Sum.of(1)))
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
def test_invalid_arguments_are_refused_at_the_launch(
    held: Bench, deadline: int, duration: int, config: ExecutionConfig, rule: str
) -> None:
    with pytest.raises(HalError) as caught:
        held.fenced(Sum.of(1).request, (), config, deadline, duration)
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, rule)
    assert held.hold.started == []


# ---- Failing --------------------------------------------------------------------------------------------


def test_a_fence_in_error_at_the_launch_is_an_invalid_argument(held: Bench) -> None:
    good, bad = Fence(), Fence()
    bad.end(error=True)
    with pytest.raises(HalError, match="fence 1 of wait_for is in error") as caught:
        held.fenced(Sum.of(1).request, [good, bad])
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-EXECARG-04")


def test_a_fence_that_ends_in_error_later_ends_all_that_follow(held: Bench) -> None:
    first, never = Fence(), Fence()
    executions = [held.fenced(Sum.of(1).request, [first, never])]
    for _ in range(2000):
        executions.append(held.fenced(Sum.of(1).request, [executions[-1].fence]))
    first.end(error=True)
    assert {over(execution) for execution in executions} == {FAILED}
    assert held.hold.started == []
    assert never._listeners == {}


def test_an_execution_that_fails_sets_its_fence_to_error(held: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "a value that the operation does not take")

    monkeypatch.setattr(held.hold, "wait", fail)
    execution = held.fenced(Sum.of(1).request)
    assert over(execution) == FAILED, "INVALID_ARGUMENT is no status of an execution that was launched"
    assert "does not take" in execution.info().reason


def test_a_driver_that_breaks_sets_the_fence_to_error(
    held: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(held.hold, "wait", fail)
    assert over(held.fenced(Sum.of(1).request)) == FAILED
    assert "a defect" in caplog.text
    monkeypatch.undo()
    held.hold.go.set()
    assert over(held.fenced(Sum.of(1).request)) == NONE, "the turn was given back"


def test_a_model_and_its_memory_are_let_go_at_the_end(held: Bench) -> None:
    held.hold.go.set()
    execution = held.fenced(Sum.of(1).request)
    assert over(execution) == NONE
    assert execution._work is None
    assert execution._over is None


# ---- Time -----------------------------------------------------------------------------------------------


def test_a_deadline_in_the_past_is_refused_at_the_launch(held: Bench) -> None:
    with pytest.raises(HalError) as caught:
        held.fenced(Sum.of(1).request, [Fence()], deadline_ns=now_ns() - 1)
    assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


def test_a_deadline_ends_the_wait_for_a_fence(held: Bench) -> None:
    fence = Fence()
    execution = held.fenced(Sum.of(1).request, [fence], deadline_ns=now_ns() + 20_000_000)
    assert over(execution) in MISSED
    assert fence._listeners == {}
    fence.end()
    assert held.hold.started == []


def test_a_deadline_ends_the_wait_for_a_turn(held: Bench) -> None:
    running = held.fenced(Sum.of(1).request)
    assert until(lambda: held.hold.started == [1])
    late = held.fenced(Sum.of(2).request, deadline_ns=now_ns() + 20_000_000)
    assert over(late) in MISSED
    assert running.fence.state == FenceState.ACTIVE
    assert held.device.execution_counts.expired == 1
    assert held.hold.started == [1]


def test_a_deadline_ends_the_work_between_operations(held: Bench) -> None:
    execution = held.fenced(Sum.of(1).request, deadline_ns=now_ns() + 20_000_000)
    assert over(execution) in MISSED
    counts = held.device.execution_counts
    assert (counts.started, counts.wasted) == (1, 1)
    assert counts.wasted_ns > 0


def test_a_duration_begins_when_the_fences_have_signalled(held: Bench) -> None:
    fence = Fence()
    execution = held.fenced(Sum.of(1).request, [fence], duration_ns=30_000_000)
    time.sleep(0.06)
    assert execution.fence.state == FenceState.ACTIVE
    fence.end()
    assert over(execution) in MISSED
    assert held.hold.started == [1], "it ran when the duration was over"


@pytest.mark.parametrize(("deadline_s", "duration_s"), [(0.02, 60), (60, 0.02)])
def test_the_earlier_of_deadline_and_duration_counts(held: Bench, deadline_s: float, duration_s: float) -> None:
    fence = Fence()
    deadline = now_ns() + int(deadline_s * 1e9)
    execution = held.fenced(Sum.of(1).request, [fence], deadline_ns=deadline, duration_ns=int(duration_s * 1e9))
    fence.end()
    assert over(execution) in MISSED


def test_the_longest_times_do_not_overflow(held: Bench) -> None:
    held.hold.go.set()
    longest = 2**63 - 1
    fence = Fence()
    execution = held.fenced(Sum.of(1).request, [fence], deadline_ns=longest, duration_ns=longest)
    fence.end()
    assert over(execution) == NONE


def test_timings(held: Bench) -> None:
    held.hold.go.set()
    fence = Fence()
    measured = ExecutionConfig(measure_timing=True)
    execution = held.fenced(Sum.of(1).request, [fence], measured)
    time.sleep(0.03)
    fence.end()
    assert over(execution) == NONE
    launched, fenced = execution.info().timing_launched, execution.info().timing_fenced
    assert launched.time_on_device_ns == fenced.time_on_device_ns >= 0
    assert fenced.time_on_device_ns <= fenced.time_in_driver_ns
    assert fenced.time_in_driver_ns + 30_000_000 <= launched.time_in_driver_ns
    plain = held.fenced(Sum.of(1).request)
    over(plain)
    assert plain.info().timing_launched.time_on_device_ns == plain.info().timing_fenced.time_in_driver_ns == OMITTED


# ---- Cancelling -----------------------------------------------------------------------------------------


def test_cancelling_while_it_waits_for_a_fence(held: Bench) -> None:
    fence = Fence()
    execution = held.fenced(Sum.of(1).request, [fence])
    execution.cancel()
    assert execution.fence.state == FenceState.ERROR
    assert "cancelled" in execution.info().reason
    assert fence._listeners == {}


def test_cancelling_while_it_waits_for_a_turn_and_while_it_runs(held: Bench) -> None:
    running = held.fenced(Sum.of(1).request)
    assert until(lambda: held.hold.started == [1])
    queued = held.fenced(Sum.of(2).request)
    queued.cancel()
    assert queued.fence.state == FenceState.ERROR
    assert held.device._scheduler.gate.waiting == 0
    running.cancel()
    assert over(running) == FAILED
    held.hold.go.set()
    assert over(held.fenced(Sum.of(3).request)) == NONE
    assert held.hold.started == [1, 3]


def test_cancelling_what_is_over_changes_nothing(held: Bench) -> None:
    held.hold.go.set()
    execution = held.fenced(Sum.of(1).request)
    assert over(execution) == NONE
    execution.cancel()
    assert (execution.fence.state, execution.info().status) == (FenceState.SIGNALED, NONE)


def test_a_full_queue_refuses(held: Bench) -> None:
    with bench(queue=1) as small:
        running = small.fenced(Sum.of(1).request)
        assert until(lambda: small.hold.started == [1])
        small.fenced(Sum.of(2).request)
        with pytest.raises(HalError, match="queued_executions") as caught:
            small.fenced(Sum.of(3).request)
        assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        fence = Fence()
        later = small.fenced(Sum.of(4).request, [fence])
        fence.end()
        assert over(later) == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        small.hold.go.set()
        assert over(running) == NONE
