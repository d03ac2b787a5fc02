"""Cancellation of work that its client no longer waits for."""

import contextlib
from collections import deque
from collections.abc import Callable

from nnhal.errors import HalError, general_failure


class Cancellation:
    """Flag that a client sets once and that the work checks between its steps. Thread safe, without a lock."""

    __slots__ = ("_cancelled", "_error", "_listeners")

    def __init__(self) -> None:
        self._cancelled = False
        self._error = cancelled_error
        self._listeners: deque[Callable[[], object]] = deque()

    @property
    def cancelled(self) -> bool:
        """True if cancellation was requested."""
        return self._cancelled

    def error(self) -> HalError:
        """Return the error to report for the work after a cancellation."""
        return self._error()

    def cancel(self, error: Callable[[], HalError] | None = None) -> None:
        """Request cancellation. Work that has finished is not affected.

        `error` returns the error to report for the work; by default GENERAL_FAILURE, "cancelled by the client".
        """
        if not self._cancelled and error is not None:
            self._error = error
        self._cancelled = True
        self._notify()

    def on_cancel(self, listener: Callable[[], object]) -> None:
        """Call a function once on cancellation, or now if already cancelled. It must not block."""
        self._listeners.append(listener)
        if self._cancelled:
            self._notify()

    def off_cancel(self, listener: Callable[[], object]) -> None:
        """Remove a listener, if it was not called yet."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def _notify(self) -> None:
        while self._listeners:
            try:
                listener = self._listeners.popleft()
            except IndexError:  # another thread notifies too
                return
            listener()

    def check(self) -> None:
        """Raise if cancellation was requested.

        Raises:
            HalError: GENERAL_FAILURE: cancelled; or the error of the cancellation.
        """
        if self._cancelled:
            raise self._error()


def cancelled_error() -> HalError:
    """Return the error of cancelled work."""
    return general_failure("cancelled by the client")
