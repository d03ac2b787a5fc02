"""Fence: a promise that ends once, well or in error (Android's sync fence). Whoever waits is told; no thread waits."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from nnhal.enums import FenceState

_log = logging.getLogger(__name__)


Listener = Callable[["Fence"], None]


class Fence:
    """A fence. Thread safe."""

    def __init__(self) -> None:
        self._state = FenceState.ACTIVE
        self._listeners: dict[Listener, None] = {}
        self._lock = threading.Lock()

    @property
    def state(self) -> FenceState:
        """ACTIVE, and later SIGNALED or ERROR for good."""
        return self._state

    def end(self, *, error: bool = False) -> bool:
        """Signals the fence, or sets it to error, and tells all that wait; gives whether it was active."""
        with self._lock:
            if self._state != FenceState.ACTIVE:
                return False
            self._state = FenceState.ERROR if error else FenceState.SIGNALED
            listeners, self._listeners = self._listeners, {}
        _tell(partial(listener, self) for listener in listeners)
        return True

    def when_over(self, listener: Listener) -> None:
        """Calls a function with the fence when it ends, or now if it has, on any thread. It must not block."""
        with self._lock:
            if self._state == FenceState.ACTIVE:
                self._listeners[listener] = None
                return
        _tell([partial(listener, self)])

    def forget(self, listener: Listener) -> None:
        """Takes a listener back."""
        with self._lock:
            self._listeners.pop(listener, None)


_telling = threading.local()


def _tell(calls: Iterable[Callable[[], None]]) -> None:
    """Makes calls, one after the other: those that come meanwhile on this thread wait until these are done.

    An error runs through a whole chain of executions in one go; nested calls would exhaust the stack.
    """
    waiting: deque[Callable[[], None]] | None = getattr(_telling, "calls", None)
    if waiting is not None:
        waiting.extend(calls)
        return
    _telling.calls = waiting = deque(calls)
    try:
        while waiting:
            _call(waiting.popleft())
    finally:
        del _telling.calls


def _call(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # the others must be told all the same
        _log.exception("a listener of a fence failed")
