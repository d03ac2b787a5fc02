"""History of the load of a service: what the charts of the page show."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from nnhal.admin.quantiles import quantile
from nnhal.admin.v1 import admin_pb2

SPAN_S = 900.0
"""Seconds that the history covers."""
_MAX_POINTS = 900
_WINDOW_S = 10.0
"""Seconds over which quantiles are computed: single intervals have too few executions."""


@dataclass(frozen=True, slots=True)
class _Point:
    at: float
    load: admin_pb2.LoadSnapshot
    sessions: int
    memory_bytes: int


class LoadHistory:
    """The last minutes. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: deque[_Point] = deque(maxlen=_MAX_POINTS)

    def add(self, snapshot: admin_pb2.ServiceSnapshot) -> None:
        """Add the load of a snapshot, unless it is older than the last one."""
        load = admin_pb2.LoadSnapshot()
        load.CopyFrom(snapshot.load)  # a reference would keep the memory of the whole snapshot
        point = _Point(
            snapshot.at,
            load,
            sum(worker.sessions for worker in snapshot.workers),
            sum(worker.memory_bytes for worker in snapshot.workers),
        )
        with self._lock:
            if self._points and point.at <= self._points[-1].at:
                return
            self._points.append(point)
            while self._points[0].at < point.at - SPAN_S:
                self._points.popleft()

    def series(self, since: float = 0.0) -> dict[str, list[float | None]]:
        """Return the series after an instant (s since 1970). Rates, quantiles and shares are None where nothing ran."""
        with self._lock:
            points = list(self._points)
        table: dict[str, list[float | None]] = {name: [] for name in _SERIES}
        start = 0
        for index, point in enumerate(points):
            while start < index - 1 and points[start].at < point.at - _WINDOW_S:
                start += 1
            if point.at <= since:
                continue
            row = _row(points[start], points[max(index - 1, 0)], point)
            for name, value in zip(_SERIES, row, strict=True):
                table[name].append(value)
        return table


_SERIES = (
    "at",
    "executions_per_s",
    "rejected_per_s",
    "running",
    "queued",
    "preparing",
    "sessions",
    "memory_bytes",
    "duration_p50_s",
    "duration_p95_s",
    "duration_p99_s",
    "waits_over_1ms",
    "waits_over_10ms",
    "waits_over_100ms",
)


def _row(first: _Point, previous: _Point, point: _Point) -> tuple[float | None, ...]:
    seconds, old, new = point.at - previous.at, previous.load, point.load
    durations, waits = _difference(first.load.durations, new.durations), _difference(first.load.waits, new.waits)
    return (
        point.at,
        max(new.executions - old.executions, 0) / seconds if seconds else None,
        max(new.rejected - old.rejected, 0) / seconds if seconds else None,
        new.running,
        new.queued,
        new.preparing,
        point.sessions,
        point.memory_bytes,
        *(quantile(new.bounds_s, durations, share) for share in (0.5, 0.95, 0.99)),
        *(share_above(new.bounds_s, waits, limit_s) for limit_s in (0.001, 0.01, 0.1)),
    )


def _difference(old: Sequence[int], new: Sequence[int]) -> list[int]:
    """Return the executions by class between two points. Counts start again with a new admin process."""
    if len(old) != len(new):
        return list(new)
    return [max(after - before, 0) for before, after in zip(old, new, strict=True)]


def share_above(bounds: Sequence[float], counts: Sequence[int], limit: float) -> float | None:
    """Return the share of values above a limit, which is a bound; None if all classes are empty.

    Classes of waits are too wide for quantiles. The last class has no upper bound.
    """
    total = sum(counts)
    below = sum(count for bound, count in zip(bounds, counts, strict=False) if bound <= limit)
    return (total - below) / total if total else None
