"""The process of the cache share, as its supervisor sees it."""

import logging
import os
import signal
from contextlib import suppress

from nnhal_service.channel import Message, wait_readable
from nnhal_service.log import event
from nnhal_service.metrics.supervisor_metrics import SupervisorMetrics
from nnhal_service.settings import Settings
from nnhal_service.supervisor.child_process import PacketProcess
from nnhal_service.supervisor.template import ChildKind

FLUSH_S = 5.0
"""Seconds that the process may take at the end to write what waits."""
_END_S = 1.0
"""Seconds after that until it is killed."""
_BUFFER_BYTES = 2**20


class ShareProcess(PacketProcess):
    """The process of the cache share, or the place for one. The packets are requests. Close it when done."""

    def __init__(self, metrics: SupervisorMetrics) -> None:
        super().__init__(ChildKind.SHARE, metrics, _BUFFER_BYTES, has_output=False)

    def _is_wanted(self, settings: Settings) -> bool:
        return settings.uses_cache_share

    def _handle(self, message: Message) -> None:
        super()._handle(message)
        if "replace" in message:
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
            if not wait_readable(process, FLUSH_S + _END_S):
                event("share-died", logging.ERROR, pid=self.pid, how="it did not stop in time")
            os.close(process)
        while self.channel is not None and self.channel.poll() and self.receive():
            pass  # its last counts
