"""How many threads serve one call of a model: measured on its first calls, since no rule knows it beforehand.

All processors help one large model and hurt a small one. The first calls run with one thread; if they are long, some
more run with all, and the faster way stays. Preparation pays nothing for it.
"""

import os
from functools import cache

_CALLS = 3
"""Calls that are timed for each number of threads: the first of them also warms memory up."""
_WORTH_IT = 2e-3
"""Seconds that a call with one thread must take before more are tried."""
_GAIN = 0.85
"""What more threads must bring the time of a call down to."""


class ThreadChoice:
    """The choice for one model. Calls that run at the same time may both be noted; the choice is rough anyway.

    Attributes:
        wanted: threads for the next call.
        open: whether calls are still timed.
    """

    def __init__(self, most: int) -> None:
        self.wanted = 1
        self._most = most
        self._seconds: dict[int, list[float]] = {1: [], most: []}
        self.open = most > 1

    def note(self, threads: int, seconds: float) -> None:
        """Takes down how long a call took."""
        if not self.open:
            return
        timed = self._seconds[threads]
        timed.append(seconds)
        if len(timed) < _CALLS:
            return
        if threads == 1 and self.wanted == 1:
            self.open = min(timed) > _WORTH_IT
            self.wanted = self._most if self.open else 1
        elif threads == self._most:
            self.open = False
            self.wanted = self._most if min(timed) < _GAIN * min(self._seconds[1]) else 1


@cache
def processors() -> int:
    """Processors of this machine."""
    return os.cpu_count() or 1
