"""Timers: order, cancellation and errors."""

import pytest

from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from tests.driver.blocking_backend import until
from tests.driver.clock import MS, FakeClock


def test_timers_call_in_order_and_skip_cancelled_ones(clock: FakeClock) -> None:
    timers, called = Timers("test"), []
    base = clock.now_ns + MS
    created = [timers.call_at(base + i * MS, lambda i=i: called.append(i)) for i in reversed(range(10))]  # type: ignore[misc]
    for timer in created[::2]:
        timer.cancel()
        timer.cancel()
    clock.advance(10 * MS)
    assert until(lambda: len(called) == 5)
    assert called == [0, 2, 4, 6, 8]
    timers.close()


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers("test")
    for _ in range(10_000):
        timers.call_at(now_ns() + 10**15, lambda: None).cancel()
    assert len(timers._heap) < 10
    timers.close()


def test_timer_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    timers, called = Timers("test"), []

    def fail() -> None:
        raise RuntimeError("broken timer")

    timers.call_at(0, fail)
    timers.call_at(0, lambda: called.append(1))
    assert until(lambda: called == [1])
    assert "broken timer" in caplog.text
    timers.close()
