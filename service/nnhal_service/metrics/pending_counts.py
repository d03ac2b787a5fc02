"""Counts of a process that its supervisor adds to the totals: they are passed on from time to time."""

import threading
from collections import Counter

from nnhal_service.metrics.catalog import Metric


class PendingCounts:
    """Counts since the last `take`. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def count(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[metric.name, labels] += amount  # type: ignore[assignment]

    def take(self) -> list[tuple[str, tuple[str, ...], float]]:
        """Return names of metrics, labels and what to add, and begin anew."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return [(name, labels, amount) for (name, labels), amount in counts.items()]
