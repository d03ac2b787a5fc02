"""Clock of CLOCK_BOOTTIME that tests set."""

import time
from dataclasses import dataclass, field


@dataclass
class FakeClock:
    """Clock that stands still until `advance` is called.

    Threads that wait for a deadline on it wake up when that much real time has passed, read the clock and wait again.
    Use deadlines of about a millisecond, so that they notice soon when the clock has advanced.
    """

    now_ns: int = field(default_factory=lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def advance(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns


MS = 1_000_000
"""A millisecond in nanoseconds."""
