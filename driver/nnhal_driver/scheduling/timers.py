"""Timers: functions that one thread calls at given instants."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from nnhal_driver.scheduling.deadline import Deadline

_log = logging.getLogger(__name__)


class Timer:
    """One scheduled call. Cancel it when it is no longer needed.

    `call`: the function; None once it was called or cancelled.
    """

    __slots__ = ("_timers", "call")

    def __init__(self, timers: "Timers", call: Callable[[], None]) -> None:
        self._timers = timers
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancel the call. A call that runs or has run is not affected."""
        self._timers.cancel(self)


class Timers:
    """Thread that calls functions at instants of CLOCK_BOOTTIME. The functions must neither block nor raise.

    Close it when done.
    """

    def __init__(self, name: str) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call_at(self, instant_ns: int, call: Callable[[], None]) -> Timer:
        """Call a function at an instant, or soon if the instant has passed."""
        timer = Timer(self, call)
        with self._changed:
            heapq.heappush(self._heap, (instant_ns, next(self._numbers), timer))
            if self._heap[0][2] is timer:
                self._changed.notify()
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a call."""
        with self._changed:
            if timer.call is None:
                return
            timer.call = None  # frees what the function refers to before the timer itself is freed
            self._cancelled += 1
            self._remove_cancelled()

    def _remove_cancelled(self) -> None:
        """Remove cancelled timers once they are more than half of all."""
        if self._cancelled > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """End the thread. Pending calls are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except BaseException:  # the thread serves all other timers
                _log.exception("the function of a timer failed")
            del call  # a waiting thread must keep nothing alive

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next call. Return None when the timers are closed."""
        with self._changed:
            while not self._closed:
                if not self._heap:
                    self._changed.wait()
                elif (at := Deadline(self._heap[0][0])).has_passed():
                    _, _, timer = heapq.heappop(self._heap)
                    if (call := timer.call) is not None:
                        timer.call = None
                        self._remove_cancelled()
                        return call
                    self._cancelled -= 1
                else:
                    self._changed.wait(at.remaining_s())
        return None
