"""Choice of the number of threads for a model, measured during its first calls.

All CPUs speed up a large model and slow down a small one. The first calls run with one thread. If they are slow, the
next ones run with all threads, and later calls use the faster choice. Preparation takes no extra time. Other work on
the machine affects the choice: threads that do not get a CPU are slow.
"""

_CALLS = 5
"""Measured calls for each number of threads. The first one also warms up memory."""
_MIN_SECONDS = 0.4e-3
"""Duration of a call with one thread above which more threads are tried."""
_MAX_RATIO = 0.9
"""Ratio of durations below which more threads are used."""


class ThreadChoice:
    """Choice for one model. Concurrent calls may both be recorded; the choice need not be exact.

    Attributes:
        threads: threads for the next call.
        is_measuring: whether calls are still measured.
    """

    def __init__(self, max_threads: int) -> None:
        self.threads = 1
        self._max_threads = max_threads
        self._seconds: dict[int, list[float]] = {1: [], max_threads: []}
        self.is_measuring = max_threads > 1

    def record(self, threads: int, seconds: float) -> None:
        """Record the duration of a call."""
        if not self.is_measuring:
            return
        durations = self._seconds[threads]
        durations.append(seconds)
        if len(durations) < _CALLS:
            return
        if threads == 1 and self.threads == 1:
            self.is_measuring = min(durations) > _MIN_SECONDS
            self.threads = self._max_threads if self.is_measuring else 1
        elif threads == self._max_threads:
            self.is_measuring = False
            self.threads = self._max_threads if min(durations) < _MAX_RATIO * min(self._seconds[1]) else 1
