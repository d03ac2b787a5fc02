"""Metrics of a service: the sum over its workers, living and ended."""

from collections.abc import Collection, Iterable

from nnhal_service.metrics.snapshot import Snapshot


class ServiceMetrics:
    """Sum over the workers of a service. Its counters never go back. For one thread at a time."""

    def __init__(self) -> None:
        self._last: dict[int, Snapshot] = {}

    def merge(self, ended: Snapshot, living: Iterable[bytes]) -> Snapshot:
        """Return the values of the service.

        Args:
            ended: snapshot of the supervisor, with the totals of the workers that have ended.
            living: snapshots of the workers that answered. For one that did not, counters keep their last values until
                the supervisor has its total; damaged snapshots count as no answer.
        """
        answered = set()
        for data in living:
            try:
                snapshot = Snapshot.decode(data)
            except ValueError:
                continue
            self._last[snapshot.source] = snapshot
            answered.add(snapshot.source)
        self._forget(ended.includes)
        total = Snapshot()
        total.merge(ended)
        for source, snapshot in self._last.items():
            total.merge(snapshot, gauges=source in answered)
        return total

    def _forget(self, sources: Collection[int]) -> None:
        """Drop the snapshots of workers that are part of the supervisor's totals."""
        self._last = {source: snapshot for source, snapshot in self._last.items() if source not in sources}
