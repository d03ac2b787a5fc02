"""Fences (Android's sync fences): promises that end once, signalled or in error. No thread waits for them."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from nnhal.types import FenceState

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
        """ACTIVE at first. SIGNALED and ERROR are final."""
        return self._state

    def signal(self, *, error: bool = False) -> bool:
        """Signal the fence, or set it to error, and call its listeners. Return whether it was active."""
        with self._lock:
            if self._state != FenceState.ACTIVE:
                return False
            self._state = FenceState.ERROR if error else FenceState.SIGNALED
            listeners, self._listeners = self._listeners, {}
        _call_all(partial(listener, self) for listener in listeners)
        return True

    def add_listener(self, listener: Listener) -> None:
        """Call a function with the fence when it ends, or now if it has ended, on any thread. It must not block."""
        with self._lock:
            if self._state == FenceState.ACTIVE:
                self._listeners[listener] = None
                return
        _call_all([partial(listener, self)])

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener."""
        with self._lock:
            self._listeners.pop(listener, None)


_pending = threading.local()
"""Calls that the current thread still has to make; set only while `_call_all` runs on it.

It belongs to the thread and not to a device, because a chain of fences may lead through several devices.
"""


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    """Make calls one after the other. Calls that are added meanwhile on this thread are made after them.

    An error runs through a whole chain of executions at once. Nested calls would exhaust the stack.
    """
    queue: deque[Callable[[], None]] | None = getattr(_pending, "calls", None)
    if queue is not None:
        queue.extend(calls)
        return
    _pending.calls = queue = deque(calls)
    try:
        while queue:
            call = queue.popleft()
            try:
                call()
            except BaseException:  # the other listeners must be called all the same
                _log.exception("a listener of a fence failed")
    finally:
        del _pending.calls
