"""Cancellation of the consecutive executions of one stream or connection."""

from nnhal_driver.scheduling.cancellation import Cancellation


class CancellationScope:
    """Gives each execution a cancellation of its own, until the scope is cancelled as a whole."""

    def __init__(self) -> None:
        self._cancelled = False
        self._current = Cancellation()

    def next(self) -> Cancellation:
        """Return the cancellation of the next execution, already cancelled if the scope is."""
        self._current = Cancellation()
        if self._cancelled:
            self._current.cancel()
        return self._current

    def cancel(self) -> None:
        """Cancel the current execution and all that follow."""
        self._cancelled = True
        self._current.cancel()
