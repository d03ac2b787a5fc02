"""Until when a service process runs: SIGINT, SIGTERM, or the end of the process that it belongs to.

The interpreter notes a signal, and calls its handler when the main thread comes round to it. A signal that comes just
before that thread waits for a lock is noted, and the wait goes on: on a busy machine a service in some hundred never
stopped. So the main thread waits for descriptors, of which one tells what the interpreter has noted.
"""

import os
import select
import signal
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """From now on these signals end nothing but `wait`. For the main thread alone; a context manager.

    Args:
        parent: a process whose end is waited for as well. A pidfd cannot miss it, and no child of it can keep it open.
    """

    def __init__(self, parent: int | None = None) -> None:
        self._hear, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        self._watched = [self._hear]
        for number in _SIGNALS:
            signal.signal(number, _noted)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        if parent is not None:
            self._watch(parent)

    def _watch(self, process: int) -> None:
        try:
            self._watched.append(os.pidfd_open(process))
        except ProcessLookupError:  # it has ended already
            os.write(self._tell, bytes([signal.SIGTERM]))

    def wait(self) -> None:
        """Waits for a signal, or for the parent's end."""
        while True:
            ready, _, _ = select.select(self._watched, [], [])
            if ready != [self._hear] or set(_SIGNALS) & set(os.read(self._hear, 4096)):
                return

    def __enter__(self) -> "Ending":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Closes its descriptors."""
        signal.set_wakeup_fd(-1)
        for descriptor in (self._tell, *self._watched):
            os.close(descriptor)


def _noted(number: int, frame: FrameType | None) -> None:
    """The interpreter has told the descriptor."""
