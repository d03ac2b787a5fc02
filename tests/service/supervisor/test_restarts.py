"""Back-off: at once after rare crashes, slower after many, and an end after failed starts."""

from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nnhal_driver.activity import Activity, Stage
from nnhal_service.supervisor.restarts import MAX_FAILED_STARTS, STABLE_S, RestartPolicy, WorkerSlot
from nnhal_service.supervisor.supervisor import Supervisor


def test_first_crashes_are_restarted_at_once() -> None:
    policy = RestartPolicy()
    assert [policy.delay(1.0, unexplained=True) for _ in range(2)] == [0, 0]


def test_delays_grow_up_to_a_limit() -> None:
    policy = RestartPolicy()
    delays = [policy.delay(0.5, unexplained=True) for _ in range(20)]
    assert delays == sorted(delays)
    assert 0 < delays[2] < delays[4]
    assert delays[-1] == delays[-2] == 5.0


def test_stable_worker_is_restarted_at_once_again() -> None:
    policy = RestartPolicy()
    for _ in range(10):
        policy.delay(0.5, unexplained=True)
    assert policy.delay(STABLE_S, unexplained=True) == 0


def test_failures_with_a_known_cause_are_restarted_at_once() -> None:
    policy = RestartPolicy()
    assert {policy.delay(0.01, unexplained=False) for _ in range(100)} == {0}


def test_failed_starts_exhaust_the_policy_unless_one_succeeds() -> None:
    policy = RestartPolicy()
    for _ in range(MAX_FAILED_STARTS - 1):
        assert policy.delay(None, unexplained=True) > 0
    assert not policy.has_failed_too_often
    policy.note_serving()
    for _ in range(MAX_FAILED_STARTS - 1):
        policy.delay(None, unexplained=True)
    assert not policy.has_failed_too_often
    policy.delay(None, unexplained=True)
    assert policy.has_failed_too_often


GUILTY = Activity(Stage.EXECUTING, b"digest", b"", "CpuRef", 1, 2, 0, 0, 7)


@pytest.mark.parametrize(
    ("culprits", "crashed", "killed_because", "is_delayed"),
    [
        ([GUILTY], True, "", False),
        ([GUILTY], False, "an execution goes on", False),
        ([replace(GUILTY, digest=b"")], True, "", True),
        ([], True, "", True),
        ([], False, "no heartbeat for 30 s", True),
        ([], False, "", False),
    ],
)
def test_only_failures_without_a_culprit_are_delayed(
    monkeypatch: pytest.MonkeyPatch, culprits: list[Activity], crashed: bool, killed_because: str, is_delayed: bool
) -> None:
    monkeypatch.setattr("nnhal_service.supervisor.supervisor.time.monotonic", lambda: 100.0)
    supervisor = object.__new__(Supervisor)
    supervisor._slots, supervisor._announced = defaultdict(WorkerSlot), True
    worker: Any = SimpleNamespace(
        spec=SimpleNamespace(slot=0), served_at=99.0, failure="", killed_because=killed_because, culprits=culprits
    )
    for _ in range(5):
        supervisor._schedule_restart(worker, crashed=crashed)
    restart_at = supervisor._slots[0].restart_at
    assert restart_at is not None
    assert (restart_at > 100.0) == is_delayed
