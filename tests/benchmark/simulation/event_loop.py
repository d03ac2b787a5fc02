"""Loop of a discrete-event simulation."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class EventLoop:
    """Events in the order of their times.

    Attributes:
        now: simulated time in seconds.
        count: number of events so far.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.count = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def call_at(self, at: float, work: Callable[..., None], *arguments: Any) -> None:
        """Run a function at a time. Functions of the same time run in the order of these calls."""
        heapq.heappush(self._events, (at, next(self._numbers), work, arguments))

    def run(self, until: float) -> None:
        """Run all events up to a time."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, work, arguments = heapq.heappop(events)
            self.count += 1
            work(*arguments)
        self.now = until
