"""Circuit breaker: after some failures in a row, whatever fails is not tried for a while."""

import threading
import time
from collections.abc import Callable

_FAILURES = 3
"""Failures in a row that open the circuit."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 5.0, 300.0
"""Length of the first pause, and of the longest one. Each pause is twice as long as the one before."""


class CircuitBreaker:
    """Circuit breaker. Thread safe.

    After a pause, one attempt is admitted. Its failure begins the next pause; a success ends them.

    Args:
        on_change: called with the reason when the first pause begins, and with "" when the pauses end.
    """

    def __init__(self, on_change: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_change = on_change
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause_s = 0.0
        self._closed_at = 0.0
        self._reason = ""

    @property
    def is_open(self) -> bool:
        """True during a pause, and until an attempt after it has succeeded."""
        return self._pause_s > 0

    def refusal(self) -> str:
        """Return why there must be no attempt now, or "". After a pause, only one caller gets ""."""
        with self._lock:
            if not self._pause_s:
                return ""
            if self._clock() < self._closed_at:
                return self._reason
            self._closed_at = self._clock() + self._pause_s
            return ""

    def succeed(self) -> None:
        """Note a success."""
        with self._lock:
            was_open, self._failures, self._pause_s = self._pause_s > 0, 0, 0.0
        if was_open:
            self._on_change("")

    def fail(self, reason: str) -> None:
        """Note a failure."""
        with self._lock:
            self._failures += 1
            if self._failures < _FAILURES:
                return
            opens = not self._pause_s
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _MAX_PAUSE_S)
            self._closed_at, self._reason = self._clock() + self._pause_s, reason
        if opens:
            self._on_change(reason)
