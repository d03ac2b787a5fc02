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


def test_usual_latency_is_a_running_mean_that_failures_raise() -> None:
    history = LatencyHistory()
    for _ in range(2):
        history.add(1000)
        assert history.usual_ns == 0
    for _ in range(20):
        history.add(1000)
    assert 990 <= history.usual_ns <= 1000
    history.add_failure(50_000)
    assert history.usual_ns == 50_000
    history.add_failure(10)
    assert history.usual_ns == 50_000
    history.add(0)
    assert history.usual_ns == 37_500
