"""Timers whose clock only advances when a test says so."""

from collections.abc import Callable


class FakeTimer:
    """Scheduled call of `FakeTimers`."""

    def __init__(self, at_ns: int, call: Callable[[], None]) -> None:
        self.at_ns = at_ns
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class FakeTimers:
    """Takes the place of `Timers`, and `now` that of `now_ns`."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._timers: list[FakeTimer] = []

    def now(self) -> int:
        return self._now_ns

    def call_at(self, instant_ns: int, call: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(instant_ns, call)
        self._timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass, and make the calls that are due."""
        self._now_ns += int(seconds * 1e9)
        due = [timer for timer in self._timers if timer.at_ns <= self._now_ns]
        self._timers = [timer for timer in self._timers if timer.at_ns > self._now_ns]
        for timer in due:
            if timer.call is not None:
                timer.call()

    def close(self) -> None:
        self._timers.clear()
