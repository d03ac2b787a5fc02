"""Giving up work that nobody waits for any more."""

from collections import deque
from collections.abc import Callable

from nnhal.errors import HalError, general_failure


class Cancellation:
    """Set once by whoever asked for the work, looked at between the steps of it. Thread safe, without a lock."""

    __slots__ = ("_cancelled", "_listeners")

    def __init__(self) -> None:
        self._cancelled = False
        self._listeners: deque[Callable[[], None]] = deque()

    def cancel(self) -> None:
        """Asks for an end. Work that has finished is not touched."""
        self._cancelled = True
        self._tell()

    def when_cancelled(self, listener: Callable[[], None]) -> None:
        """Calls a function once, when this is cancelled, or now if it is. It must not block."""
        self._listeners.append(listener)
        if self._cancelled:
            self._tell()

    def _tell(self) -> None:
        while self._listeners:
            try:
                listener = self._listeners.popleft()
            except IndexError:  # another thread tells too
                return
            listener()

    def check(self) -> None:
        """Ends cancelled work.

        Raises:
            HalError: GENERAL_FAILURE.
        """
        if self._cancelled:
            raise cancelled()


def cancelled() -> HalError:
    """The error of work that was given up."""
    return general_failure("cancelled by the client")
