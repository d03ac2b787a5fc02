"""Giving up work that nobody waits for any more."""

from nnhal.errors import general_failure


class Cancellation:
    """Set once by whoever asked for the work, looked at between the steps of it."""

    __slots__ = ("_cancelled",)

    def __init__(self) -> None:
        self._cancelled = False

    def cancel(self) -> None:
        """Asks for an end. Work that has finished is not touched."""
        self._cancelled = True

    def check(self) -> None:
        """Ends cancelled work.

        Raises:
            HalError: GENERAL_FAILURE.
        """
        if self._cancelled:
            raise general_failure("cancelled by the client")
