"""How long a model's recent runs took: what a deadline is judged by before the work begins."""

from collections import deque

from driver.deadline import now_ns

_KEPT = 32
_NEEDED = 3
"""Fewer runs say nothing: the first ones of a model are slower than the rest."""

_HORIZON_NS = 10_000_000_000
"""Older runs say nothing: else a model that was slow once, when the machine was busy, would be refused for ever."""


class RunTimes:
    """The recent runs of one model. Thread safe: a deque is changed and copied in one step."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int]] = deque(maxlen=_KEPT)

    def add(self, elapsed_ns: int) -> None:
        """Takes the time of a run that succeeded."""
        self._recent.append((now_ns(), elapsed_ns))

    def least_ns(self) -> int:
        """What a run takes at least, in nanoseconds; 0 where nothing is known."""
        since = now_ns() - _HORIZON_NS
        times = [elapsed for at, elapsed in tuple(self._recent) if at >= since]
        return min(times) if len(times) >= _NEEDED else 0
