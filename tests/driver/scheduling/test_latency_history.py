"""Latency history: minimum of the recent entries."""

from nnhal_driver.scheduling.latency_history import LatencyHistory
from tests.driver.clock import FakeClock


def test_nothing_is_known_of_a_model_that_has_hardly_run() -> None:
    history = LatencyHistory()
    history.add(1000)
    history.add(10)
    assert history.min_ns() == 0
    history.add(100)
    assert history.min_ns() == 10


def test_old_entries_are_ignored(clock: FakeClock) -> None:
    history = LatencyHistory()
    for _ in range(3):
        history.add(1000)
    assert history.min_ns() == 1000
    clock.advance(11 * 10**9)
    assert history.min_ns() == 0
