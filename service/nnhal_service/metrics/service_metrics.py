"""Metrics of a service: the sum over its workers, living and ended."""

import threading
from collections.abc import Collection

from nnhal_service.metrics.snapshot import Snapshot


class ServiceMetrics:
    """Sum over the workers of a service. Its counters never go back. Thread safe."""

    def __init__(self) -> None:
        self._last: dict[int, Snapshot] = {}
        self._lock = threading.Lock()

    def merge(self, ended: Snapshot, living: Collection[Snapshot]) -> Snapshot:
        """Return the values of the service.

        Args:
            ended: snapshot of the supervisor, with the totals of the workers that have ended.
            living: snapshots of the workers that answered. For one that did not, counters keep their last values until
                the supervisor has its total.
        """
        answered = {snapshot.source for snapshot in living}
        with self._lock:
            for snapshot in living:
                last = self._last.get(snapshot.source)
                if last is None or last.number < snapshot.number:  # else another thread has asked later
                    self._last[snapshot.source] = snapshot
            self._last = {source: each for source, each in self._last.items() if source not in ended.includes}
            snapshots = list(self._last.values())
        total = Snapshot()
        total.merge(ended)
        for snapshot in snapshots:
            total.merge(snapshot, gauges=snapshot.source in answered)
        return total
