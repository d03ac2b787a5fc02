"""Latencies of a model's recent executions."""

from collections import deque

from nnhal_driver.scheduling.deadline import now_ns

_MAX_ENTRIES = 32
_MIN_ENTRIES = 3
"""With fewer executions nothing is known: the first ones of a model are slower than the rest."""

_HORIZON_NS = 10_000_000_000
"""Maximum age of an entry. Otherwise a model that was slow once, on a busy machine, would be rejected for ever."""


class LatencyHistory:
    """Latencies of the recent executions of one model. Thread safe: a deque is changed and copied atomically.

    Attributes:
        max_ns: the longest latency of all executions; 0 if there was none.
        count: number of executions, as far as concurrent ones do not overwrite each other's count.
    """

    def __init__(self) -> None:
        self.max_ns = 0
        self.count = 0
        self._mean_ns = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=_MAX_ENTRIES)

    def add(self, elapsed_ns: int) -> None:
        """Add the latency of an execution that succeeded."""
        self.count += 1
        self._recent.append((now_ns(), elapsed_ns))
        self.max_ns = elapsed_ns if elapsed_ns > self.max_ns else self.max_ns
        self._mean_ns += (elapsed_ns - self._mean_ns) >> 2

    def add_failure(self, elapsed_ns: int) -> None:
        """Add the time after which an execution failed, perhaps at its deadline."""
        self._mean_ns = max(self._mean_ns, elapsed_ns)

    @property
    def usual_ns(self) -> int:
        """Running mean of the latencies, or 0 if too little is known."""
        return self._mean_ns if self.count >= _MIN_ENTRIES else 0

    def min_ns(self) -> int:
        """Return the shortest recent latency in nanoseconds, or 0 if too little is known."""
        since = now_ns() - _HORIZON_NS
        latencies = [elapsed for at, elapsed in tuple(self._recent) if at >= since]
        return min(latencies) if len(latencies) >= _MIN_ENTRIES else 0
