"""Giving up executions that follow one another on a stream or a connection."""

from driver.cancellation import Cancellation


class Succession:
    """Gives each execution a cancellation of its own; `cancel` is for the one in progress and for all that follow."""

    def __init__(self) -> None:
        self._cancelled = False
        self._current = Cancellation()

    def next(self) -> Cancellation:
        """The cancellation of the next execution."""
        self._current = Cancellation()
        if self._cancelled:
            self._current.cancel()
        return self._current

    def cancel(self) -> None:
        """Gives up."""
        self._cancelled = True
        self._current.cancel()
