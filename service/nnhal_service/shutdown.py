"""Waits for shutdown: SIGINT, SIGTERM, or the exit of the parent process. With a parent, SIGINT is ignored.

Python records a signal, and runs its handler when the main thread next executes bytecode. A signal that arrives just
before the main thread blocks on a lock is recorded, but the wait goes on. On a busy machine, about one service in a
hundred never stopped. So the main thread waits for descriptors instead, one of which carries the recorded signals.
"""

import os
import select
import signal
from collections.abc import Collection
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalPipe:
    """Signals as bytes of a pipe, from now on. For the main thread only; a context manager."""

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the pipe."""
        signal.set_wakeup_fd(-1)
        os.close(self._read_fd)
        os.close(self._write_fd)


class ShutdownSignal(SignalPipe):
    """Handles these signals from now on; they only end `wait`. For the main thread only; a context manager.

    Args:
        parent: id of a process whose exit ends `wait` too. Its pidfd reports the exit reliably, and no child process
            can keep it open.
    """

    def __init__(self, parent: int | None = None) -> None:
        super().__init__(_SIGNALS)
        # an embedded service leaves Ctrl-C to its parent, which may catch it and go on
        self._ends = {signal.SIGINT, signal.SIGTERM} if parent is None else {signal.SIGTERM}
        self._parents: list[int] = []
        if parent is not None:
            try:
                self._parents.append(os.pidfd_open(parent))
            except ProcessLookupError:  # it has exited already
                os.write(self._write_fd, bytes([signal.SIGTERM]))

    def wait(self) -> None:
        """Wait for a signal, or for the exit of the parent process."""
        while True:
            ready, _, _ = select.select([self._read_fd, *self._parents], [], [])
            if ready != [self._read_fd] or self._ends & self.read():
                return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the descriptors."""
        super().__exit__(kind, error, at)
        for descriptor in self._parents:
            os.close(descriptor)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wakeup descriptor carries the signal."""
