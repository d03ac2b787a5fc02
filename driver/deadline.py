"""Time as the HAL has it: instants of CLOCK_BOOTTIME in nanoseconds, -1 for none (hal-surface 9.1)."""

import time
from dataclasses import dataclass

from nnhal.errors import expired, missed_deadline
from nnhal.types import OMITTED

_MAX_WAIT_S = 24 * 3600.0
"""threading refuses waits of centuries; 2^63 - 1 ns is the HAL's "unlimited"."""


def now_ns() -> int:
    """The present instant."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant by which work must be done."""

    at_ns: int = OMITTED

    def passed(self) -> bool:
        """Whether the instant is over."""
        return self.at_ns != OMITTED and now_ns() >= self.at_ns

    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; None without a deadline."""
        return None if self.at_ns == OMITTED else min(max(0.0, (self.at_ns - now_ns()) / 1e9), _MAX_WAIT_S)

    def check_on_arrival(self, what: str) -> None:
        """Refuses work that is late before it begins.

        Raises:
            HalError: MISSED_DEADLINE_PERSISTENT; a retry with the same deadline cannot help.
        """
        if self.passed():
            raise expired(f"the deadline had passed before {what} began")

    def check(self, what: str) -> None:
        """Ends work that has become late.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT.
        """
        if self.passed():
            raise missed_deadline(f"the deadline passed during {what}")


NO_DEADLINE = Deadline()
