"""Waits for shutdown: SIGINT, SIGTERM, or the exit of the parent process. With a parent, SIGINT is ignored.

Python records a signal, and runs its handler when the main thread next executes bytecode. A signal that arrives just
before the main thread blocks on a lock is recorded, but the wait goes on. On a busy machine, about one service in a
hundred never stopped. So the main thread waits for descriptors instead, one of which carries the recorded signals.
"""

import os
import select
import signal
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ShutdownSignal:
    """Handles these signals from now on; they only end `wait`. For the main thread only; a context manager.

    Args:
        parent: id of a process whose exit ends `wait` too. Its pidfd reports the exit reliably, and no child process
            can keep it open.
    """

    def __init__(self, parent: int | None = None) -> None:
        # an embedded service leaves Ctrl-C to its parent, which may catch it and go on
        self._ends = {signal.SIGINT, signal.SIGTERM} if parent is None else {signal.SIGTERM}
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._watched = [self._read_fd]
        for number in _SIGNALS:
            signal.signal(number, _ignore)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        if parent is not None:
            self._watch(parent)

    def _watch(self, process: int) -> None:
        try:
            self._watched.append(os.pidfd_open(process))
        except ProcessLookupError:  # it has exited already
            os.write(self._write_fd, bytes([signal.SIGTERM]))

    def wait(self) -> None:
        """Wait for a signal, or for the exit of the parent process."""
        while True:
            ready, _, _ = select.select(self._watched, [], [])
            if ready != [self._read_fd] or self._ends & set(os.read(self._read_fd, 4096)):
                return

    def __enter__(self) -> "ShutdownSignal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the descriptors."""
        signal.set_wakeup_fd(-1)
        for descriptor in (self._write_fd, *self._watched):
            os.close(descriptor)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wakeup descriptor carries the signal."""
