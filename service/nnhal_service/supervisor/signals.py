"""Signals as bytes of a pipe, for a loop that waits for descriptors."""

import os
import signal
from collections.abc import Collection
from types import FrameType, TracebackType


class SignalPipe:
    """Handles signals from now on. For the main thread only; a context manager."""

    def __init__(self, numbers: Collection[signal.Signals]) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        for number in numbers:
            signal.signal(number, _ignore)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._read_fd

    def read(self) -> frozenset[int]:
        """Return the signals that have arrived since the last call."""
        try:
            return frozenset(os.read(self._read_fd, 4096))
        except BlockingIOError:
            return frozenset()

    def __enter__(self) -> "SignalPipe":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the pipe."""
        signal.set_wakeup_fd(-1)
        os.close(self._read_fd)
        os.close(self._write_fd)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the pipe carries the signal."""
