"""A process of a service besides its workers, as the supervisor sees it: its start, its end, and its restarts."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from nnhal_service.supervisor.channel import Channel, Message
from nnhal_service.supervisor.worker_output import WorkerOutput

_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 5.0
_STABLE_S = 10.0
"""Seconds after which the process counts as stable. Its next end is then followed by a start at once."""

Fork = Callable[[Message, Sequence[int]], None]
"""Has a process forked, with its message and its descriptors."""


class ChildProcess:
    """A process, or the place for one. Close it when done.

    Attributes:
        channel: the supervisor's end of the channel to the process; None while there is none.
        output: what its libraries print; None while there is no process, or if it goes to the log as it is.
        pid: id of the process; 0 while there is none.
    """

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.output: WorkerOutput | None = None
        self.pid = 0
        self._started_at = 0.0
        self._start_at = 0.0
        self._ends = 0
        self._is_replaced = False

    @property
    def is_due(self) -> bool:
        """True if the process should be started now."""
        return self.channel is None and time.monotonic() >= self._start_at

    def _start(self, fork: Fork, message: Message, descriptors: Sequence[int]) -> Channel:
        """Start the process, and return the channel to it.

        Args:
            fork: has the process forked.
            message: tells the process what it must know.
            descriptors: descriptors for the process, besides its end of the channel.
        """
        self._started_at = time.monotonic()
        self.channel, other = Channel.pair()
        fork({**message, "supervisor": os.getpid()}, [other.fileno(), *descriptors])
        other.close()
        return self.channel

    def receive(self) -> bool:
        """Handle a message of the process. Return False if it has ended, or closed the channel."""
        assert self.channel is not None
        received = self.channel.receive()
        if received is None:
            return False
        message, descriptors = received
        for descriptor in descriptors:
            os.close(descriptor)
        if "pid" in message:
            self.pid = message["pid"]
        else:
            self._handle(message)
        return True

    def _handle(self, message: Message) -> None:
        """Handle a message, except that with the process id."""
        raise NotImplementedError

    def end(self) -> int:
        """End the process, which has a process id, and return its status."""
        self._send_signal(signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]

    def replace(self) -> None:
        """Have the process end, so that its successor has the current settings."""
        if self.pid:
            self._is_replaced = True
            self._send_signal(signal.SIGTERM)

    def _send_signal(self, number: signal.Signals) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def note_end(self, how: str) -> None:
        """Clean up after the process, and schedule the next start."""
        if self._is_replaced:
            self._is_replaced = False
            self._clean_up()
            return
        served_s = time.monotonic() - self._started_at
        self._ends = 0 if served_s >= _STABLE_S else self._ends + 1
        delay_s = min(_FIRST_DELAY_S * 2.0 ** (self._ends - 1), _MAX_DELAY_S) if self._ends else 0.0
        self._report_end(how)
        self._start_at = time.monotonic() + delay_s
        self._clean_up()

    def _report_end(self, how: str) -> None:
        """Log that the process has ended by itself."""
        raise NotImplementedError

    def _clean_up(self) -> None:
        self._send_signal(signal.SIGKILL)
        if self.channel is not None:
            self.channel.close()
        self.channel, self.pid = None, 0

    def close(self) -> None:
        """End the process."""
        self._clean_up()
