"""Tests of the cells that `nnhal admin` and `nnhal top` show."""

import pytest

from nnhal_tools.cli.admin.columns import cells


def test_cells_of_a_model() -> None:
    model = {
        "id": "0.1.s1.2",
        "digest": "ab" * 32,
        "backends": ["CpuAcc", "CpuRef"],
        "cached": True,
        "uses": 3,
        "best_s": 0.0015,
        "memory_bytes": 0,
    }
    headings = ("model", "digest", "backends", "cached", "uses", "best", "memory")
    assert cells([model], headings, 0.0) == [
        ["0.1.s1.2", "abababababab", "CpuAcc, CpuRef", "yes", "3", "1.5 ms", "-"],
    ]


@pytest.mark.parametrize(
    ("compared", "different", "text"),
    [(0, 0, ""), (7, 0, "0.0%"), (3, 1, "33.3%"), (10**6, 1, "<0.1%"), (5, 5, "100.0%")],
)
def test_drift_of_a_model(compared: int, different: int, text: str) -> None:
    model = {"model_name": "detector/3", "shadow_compared": compared, "shadow_different": different}
    assert cells([model], ("name", "drift"), 0.0) == [["detector/3", text]]


def test_ages_are_those_at_the_time_of_the_snapshot() -> None:
    worker = {"slot": 0, "started_at": 40.0, "load": {"running": 2, "queued": 1}}
    assert cells([worker], ("worker", "age", "running", "queued"), 100.0) == [["0", "1 min", "2", "1"]]
    assert cells([{"opened_at": 90.0, "connected": False}], ("age", "connected"), 100.0) == [["10 s", "no"]]
    entry = {"token": "cd" * 32, "saved_at": 40.0, "last_used_at": 99.0, "size": 2048, "backends": "CpuAcc"}
    assert cells([entry], ("token", "saved", "used", "size", "backends"), 100.0) == [
        ["cdcdcdcdcdcd", "1 min ago", "1 s ago", "2.0 KiB", "CpuAcc"]
    ]
