"""Choice of the number of threads for a model, measured during its calls.

All CPUs speed up a large model and slow down a small one. The first calls run with one thread. If they are slow, the
next ones run with all threads, and these stay if they are faster. Preparation takes no extra time. Threads that do not
get a CPU are slow: if other work arrives, one thread is used again, and all threads are tried later.
"""

from collections import deque
from math import inf

_CALLS = 5
"""Number of last calls whose median is compared. The first one also warms up memory."""
_MIN_SECONDS = 0.4e-3
"""Duration of a call with one thread above which more threads are tried."""
_FASTER = 0.9
"""Ratio of durations below which more threads are used."""
_SLOWER = 1.0
"""Ratio of durations above which they are used no longer. The scheduler may keep two threads on one CPU for long."""
_RETRY_CALLS = 100
"""Calls with one thread before more threads are tried again. Each try creates an interpreter."""
_RETRY_GROWTH = 4


class ThreadChoice:
    """Choice for one model. Concurrent calls may all be recorded; the choice need not be exact.

    Attributes:
        threads: threads for the next call.
        is_measuring: whether calls are measured. Short calls with one thread are no longer measured.
    """

    def __init__(self, max_threads: int) -> None:
        self.threads = 1
        self.is_measuring = max_threads > 1
        self._max_threads = max_threads
        self._last: deque[float] = deque(maxlen=_CALLS)
        self._single_s = inf
        self._limit = _FASTER
        self._calls_to_retry = 0
        self._retry_calls = _RETRY_CALLS

    def record(self, threads: int, seconds: float) -> None:
        """Record the duration of a call."""
        if not self.is_measuring or threads != self.threads:
            return
        self._last.append(seconds)
        last = sorted(self._last)  # a copy: another thread may change them
        if len(last) < _CALLS:
            return
        median = last[_CALLS // 2]
        if threads == 1:
            self._decide_to_try(median)
        elif median < self._limit * self._single_s:
            self._limit = _SLOWER
        else:
            self._use(1)
            self._calls_to_retry = self._retry_calls
            self._retry_calls *= _RETRY_GROWTH

    def _decide_to_try(self, single_s: float) -> None:
        self._single_s = single_s
        self.is_measuring = single_s > _MIN_SECONDS
        self._calls_to_retry -= 1
        if self.is_measuring and self._calls_to_retry <= 0:
            self._use(self._max_threads)
            self._limit = _FASTER

    def _use(self, threads: int) -> None:
        self.threads = threads
        self._last.clear()
