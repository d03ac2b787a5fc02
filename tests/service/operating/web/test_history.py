"""History of the load: rates, quantiles, and its length."""

import pytest

from nnhal.admin.v1.admin_pb2 import LoadSnapshot
from nnhal_service.operating.web.history import SPAN_S, LoadHistory, share_above
from tests.service.operating.web.fake_view import FakeView


def history(*loads: tuple[float, LoadSnapshot]) -> LoadHistory:
    snapshot = FakeView(now=1.0).snapshot()
    result = LoadHistory()
    for snapshot.at, load in loads:
        snapshot.load.CopyFrom(load)
        result.add(snapshot)
    return result


def load(executions: int, *durations: int) -> LoadSnapshot:
    return LoadSnapshot(executions=executions, bounds_s=(1.0, 2.0), durations=durations, waits=durations)


def test_rates_are_those_between_two_points() -> None:
    series = history((10.0, load(5, 5, 0, 0)), (12.0, load(25, 5, 20, 0))).series()
    assert series["at"] == [10.0, 12.0]
    assert series["executions_per_s"] == [None, 10.0]
    assert series["duration_p50_s"] == [None, 1.5]


def test_only_later_points_are_returned() -> None:
    series = history((10.0, load(5, 5, 0, 0)), (12.0, load(25, 5, 20, 0))).series(since=10.0)
    assert series["at"] == [12.0]
    assert series["executions_per_s"] == [10.0]


def test_a_time_without_executions_has_no_latency() -> None:
    series = history((10.0, load(5, 5, 0, 0)), (12.0, load(5, 5, 0, 0))).series()
    assert series["executions_per_s"] == [None, 0.0]
    assert series["duration_p99_s"] == [None, None]


def test_counts_that_start_again_are_not_negative() -> None:
    series = history((10.0, load(50, 50, 0, 0)), (12.0, load(2, 2, 0, 0))).series()
    assert series["executions_per_s"] == [None, 0.0]


def test_old_points_are_dropped_and_repeated_ones_ignored() -> None:
    series = history(*((at, load(0, 0, 0, 0)) for at in (1.0, 1.0, 5.0, SPAN_S + 3.0))).series()
    assert series["at"] == [5.0, SPAN_S + 3.0]


def test_shares_count_the_classes_above_a_limit() -> None:
    assert share_above((1.0, 2.0), (6, 3, 1), 1.0) == pytest.approx(0.4)
    assert share_above((1.0, 2.0), (6, 3, 1), 2.0) == pytest.approx(0.1)
    assert share_above((1.0, 2.0), (0, 0, 0), 2.0) is None
