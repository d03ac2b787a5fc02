"""The process of the cache share, as its supervisor sees it."""

import logging
import os
import select
import signal
import socket
from contextlib import suppress

from nnhal_service.channel import Message
from nnhal_service.log import event
from nnhal_service.metrics.supervisor_metrics import SupervisorMetrics
from nnhal_service.settings import Settings
from nnhal_service.supervisor.child_process import ChildProcess
from nnhal_service.supervisor.template import ChildKind, Template

FLUSH_S = 5.0
"""Seconds that the process may take at the end to write what waits."""
_END_S = 1.0
"""Seconds after that until it is killed."""
_BUFFER_BYTES = 2**20


class ShareProcess(ChildProcess):
    """The process of the cache share, or the place for one. Close it when done.

    Attributes:
        requests: the socket to which workers send requests. They wait there while there is no process.
    """

    def __init__(self, metrics: SupervisorMetrics) -> None:
        super().__init__(ChildKind.SHARE)
        self.requests, self._received = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._metrics = metrics

    def _is_wanted(self, settings: Settings) -> bool:
        return settings.uses_cache_share

    def start(self, template: Template, settings: Settings) -> None:
        """Start the process. Then it has a channel."""
        self._start(template, settings, {}, [self._received.fileno()])

    def _handle(self, message: Message) -> None:
        if "counts" in message:
            self._metrics.add_process(message["counts"], message["gauges"])
        elif "replace" in message:
            self.replace()

    def _report_end(self, how: str) -> None:
        event("share-died", logging.ERROR, pid=self.pid, how=how)

    def stop(self) -> None:
        """Have the process write what waits, and wait until it has ended. One that hangs is killed and left alone."""
        if not self.pid:
            return
        with suppress(ProcessLookupError):
            process = os.pidfd_open(self.pid)
            self._send_signal(signal.SIGTERM)
            poll = select.poll()
            poll.register(process, select.POLLIN)
            if not poll.poll((FLUSH_S + _END_S) * 1e3):
                event("share-died", logging.ERROR, pid=self.pid, how="it did not stop in time")
            os.close(process)
        while self.channel is not None and self.channel.poll() and self.receive():
            pass  # its last counts

    def close(self) -> None:
        """End the process, and close its sockets."""
        super().close()
        self.requests.close()
        self._received.close()
