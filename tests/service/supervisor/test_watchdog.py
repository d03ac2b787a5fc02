"""Hangs: no heartbeat, or work long after its deadline or cancellation."""

from dataclasses import replace

from nnhal_driver.activity import Activity, Stage
from nnhal_service.supervisor.scoreboard import NOBODY, WorkerState
from nnhal_service.supervisor.watchdog import find_hang

SECOND = 10**9
TIMEOUT = 10 * SECOND
NOW = 1000 * SECOND
ALIVE = replace(NOBODY, pid=1, state=WorkerState.SERVING, heartbeat_ns=NOW)
EXECUTION = Activity(Stage.EXECUTING, b"model", b"", "CpuAcc", NOW - 20 * SECOND, 0, 0, 0, 7)


def reason(activity: Activity) -> str:
    hang = find_hang(ALIVE, [activity], TIMEOUT, NOW)
    assert hang is None or hang.activity is activity
    return hang.reason if hang else ""


def test_heartbeats() -> None:
    assert find_hang(ALIVE, [], TIMEOUT, NOW + 10 * SECOND) is None
    late = find_hang(ALIVE, [], TIMEOUT, NOW + 11 * SECOND)
    assert late is not None and late.reason == "no heartbeat for 11.0 s" and late.activity is None


def test_worker_without_a_row_does_not_hang() -> None:
    assert find_hang(NOBODY, [], TIMEOUT, NOW) is None


def test_execution_without_a_deadline_may_go_on() -> None:
    assert reason(EXECUTION) == ""


def test_execution_after_its_deadline() -> None:
    assert reason(replace(EXECUTION, deadline_ns=NOW - SECOND)) == ""
    late = replace(EXECUTION, deadline_ns=NOW - 2 * SECOND)
    assert reason(late) == "an execution goes on 2.0 s after its deadline"


def test_execution_after_its_cancellation() -> None:
    assert reason(replace(EXECUTION, cancelled_ns=NOW - SECOND)) == ""
    late = replace(EXECUTION, cancelled_ns=NOW - 2 * SECOND)
    assert reason(late) == "an execution goes on 2.0 s after its cancellation"


def test_earlier_end_counts() -> None:
    both = replace(EXECUTION, deadline_ns=NOW + SECOND, cancelled_ns=NOW - 2 * SECOND)
    assert reason(both) == "an execution goes on 2.0 s after its cancellation"


def test_slow_model_is_given_twice_its_usual_time() -> None:
    slow = replace(EXECUTION, deadline_ns=NOW - 5 * SECOND, expected_ns=10 * SECOND)
    assert reason(slow) == ""
    assert reason(replace(slow, expected_ns=9 * SECOND)) != ""


def test_preparations_are_given_longer() -> None:
    preparation = replace(EXECUTION, stage=Stage.PREPARING, deadline_ns=NOW - 29 * SECOND)
    assert reason(preparation) == ""
    late = replace(preparation, deadline_ns=NOW - 31 * SECOND)
    assert reason(late) == "a preparation goes on 31.0 s after its deadline"
