"""Looks for an answer for a short while before it sleeps: to be woken costs 15 µs, on some machines 70.

Only where the last answer came that soon, where another core is there for the one who is waited for, and by one thread
of a process at a time: those that look are not to take the cores from those that work.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_AT_ONCE = int(socket.MSG_DONTWAIT)
_turn = threading.Lock()
_pays = len(os.sched_getaffinity(0)) > 1


class Alertness:
    """How one socket is waited for. Used by one thread at a time.

    Args:
        seconds: the longest wait that is not slept through.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._soon = _pays

    def receive(self, receive: Callable[[int], T]) -> T:
        """What a function receives, which is called with flags for `recv`.

        Raises:
            OSError: whatever it raises, but for BlockingIOError.
        """
        until = time.perf_counter() + self._seconds
        if self._soon and _turn.acquire(blocking=False):
            try:
                while time.perf_counter() < until:
                    try:
                        return receive(_AT_ONCE)
                    except BlockingIOError:
                        os.sched_yield()
            finally:
                _turn.release()
        received = receive(0)
        self._soon = _pays and time.perf_counter() < until
        return received
