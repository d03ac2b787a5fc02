"""Deadlines: instants of CLOCK_BOOTTIME in nanoseconds, -1 for none (hal-surface 9.1)."""

import time
from dataclasses import dataclass

from nnhal.errors import expired, missed_deadline
from nnhal.types import OMITTED

_INT64_MAX = 2**63 - 1
"""The HAL's "unlimited"."""

_MAX_WAIT_S = 24 * 3600.0
"""Longest wait to ask `threading` for, which rejects waits of centuries."""


def now_ns() -> int:
    """Return the current instant."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def to_absolute(relative_ns: int) -> int:
    """Return a time relative to now as an instant.

    -1 (none) stays -1. Smaller numbers, which are invalid, are passed on for the validation to reject.
    """
    return relative_ns if relative_ns <= OMITTED else min(now_ns() + relative_ns, _INT64_MAX)


@dataclass(frozen=True, slots=True)
class Deadline:
    """Instant by which work must be done."""

    at_ns: int = OMITTED

    def has_passed(self) -> bool:
        """Return whether the instant has passed."""
        return self.at_ns != OMITTED and now_ns() >= self.at_ns

    def remaining_s(self) -> float | None:
        """Return the seconds left, at least 0; None without a deadline."""
        return None if self.at_ns == OMITTED else min(max(0.0, (self.at_ns - now_ns()) / 1e9), _MAX_WAIT_S)

    def check_on_arrival(self, work: str) -> None:
        """Raise if work is late before it begins. `work`: for the message.

        Raises:
            HalError: MISSED_DEADLINE_PERSISTENT: a retry with the same deadline cannot succeed.
        """
        if self.has_passed():
            raise expired(f"the deadline had passed before {work} began")

    def check(self, work: str) -> None:
        """Raise if work has become late. `work`: for the message.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT.
        """
        if self.has_passed():
            raise missed_deadline(f"the deadline passed during {work}")


NO_DEADLINE = Deadline()
