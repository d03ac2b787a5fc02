"""Long work pauses for others, and more often if they use the lock. The collector is paused by one at a time."""

import gc
import time

import pytest

from nnhal_driver.scheduling.paced_check import PacedCheck, pause_collector


@pytest.mark.parametrize(("pause_ns", "pauses"), [(100_000, 4), (1_000_000, 7)])
def test_work_pauses_more_often_if_a_pause_takes_long(
    pause_ns: int, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, checks = 0, 0

    def sleep(_: float) -> None:
        nonlocal now
        now += pause_ns

    def check() -> None:
        nonlocal checks
        checks += 1

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now)
    paced = PacedCheck(check)
    while now < 10_000_000:
        paced()
        now += 10_000
    assert checks == pauses


def test_pause_ends_with_the_context() -> None:
    with pause_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_work_that_overlaps_does_not_prolong_the_pause() -> None:
    first, second = pause_collector(), pause_collector()
    with first:
        second.__enter__()
    assert gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_application_that_has_stopped_the_collector_keeps_it_stopped() -> None:
    gc.disable()
    try:
        with pause_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
