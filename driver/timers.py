"""Functions that are called at an instant, on one thread for all of them."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from driver.deadline import Deadline

_log = logging.getLogger(__name__)


class Timer:
    """One call to come. `cancel` it when it is not needed any more."""

    __slots__ = ("_timers", "at", "call", "number")

    def __init__(self, timers: "Timers", at: Deadline, number: int, call: Callable[[], None]) -> None:
        self._timers = timers
        self.at = at
        self.number = number
        self.call: Callable[[], None] | None = call

    def __lt__(self, other: "Timer") -> bool:
        return (self.at.at_ns, self.number) < (other.at.at_ns, other.number)

    def cancel(self) -> None:
        """Takes the call back; one that is being made, or has been, is not touched."""
        self._timers.cancel(self)


class Timers:
    """Calls functions at instants of CLOCK_BOOTTIME. A function must neither block nor raise. Close it when done."""

    def __init__(self, name: str) -> None:
        self._heap: list[Timer] = []
        self._cancelled = 0
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def at(self, instant_ns: int, call: Callable[[], None]) -> Timer:
        """Calls a function at an instant, or soon if that is over."""
        timer = Timer(self, Deadline(instant_ns), next(self._numbers), call)
        with self._changed:
            heapq.heappush(self._heap, timer)
            if self._heap[0] is timer:
                self._changed.notify()
        return timer

    def cancel(self, timer: Timer) -> None:
        """Takes a call back."""
        with self._changed:
            if timer.call is None:
                return
            timer.call = None  # what it would have used need not live as long as the timer
            self._cancelled += 1
            self._tidy()

    def _tidy(self) -> None:
        """Drops cancelled timers once they are more than half of all."""
        if self._cancelled > len(self._heap) // 2:
            self._heap = [one for one in self._heap if one.call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Ends the thread; calls that have not come are not made."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except Exception:
                _log.exception("a timer's call failed")
            del call  # a waiting thread must keep nothing alive

    def _next(self) -> Callable[[], None] | None:
        """Waits for the next call; None when the timers are closed."""
        with self._changed:
            while not self._closed:
                if not self._heap:
                    self._changed.wait()
                elif self._heap[0].at.passed():
                    timer = heapq.heappop(self._heap)
                    if (call := timer.call) is not None:
                        timer.call = None
                        self._tidy()
                        return call
                    self._cancelled -= 1
                else:
                    self._changed.wait(self._heap[0].at.remaining_s())
        return None
