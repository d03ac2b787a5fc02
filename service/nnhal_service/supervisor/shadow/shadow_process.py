"""The process of the shadow, as its supervisor sees it."""

import logging
import socket

from nnhal_service.channel import Message
from nnhal_service.log import event
from nnhal_service.metrics.supervisor_metrics import SupervisorMetrics
from nnhal_service.settings import Settings
from nnhal_service.supervisor.child_process import ChildProcess
from nnhal_service.supervisor.template import ChildKind, Template

_BUFFER_BYTES = 2**16
"""Size of the queue: about a hundred executions with their descriptors."""


class ShadowProcess(ChildProcess):
    """The process of the shadow, or the place for one. Close it when done.

    Attributes:
        executions: the socket to which workers send executions. What it has no room for is dropped.
    """

    def __init__(self, metrics: SupervisorMetrics) -> None:
        super().__init__(ChildKind.SHADOW)
        self.executions, self._received = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.executions.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._metrics = metrics
        self._why = ""

    def _is_wanted(self, settings: Settings) -> bool:
        return settings.shadow is not None

    def start(self, template: Template, settings: Settings) -> None:
        """Start the process. Then it has a channel and an output."""
        self._why = ""
        self._start_with_output(template, settings, {}, [self._received.fileno()])

    def _handle(self, message: Message) -> None:
        if "counts" in message:
            self._metrics.add_process(message["counts"], {})
        elif "failed" in message:
            self._why = message["failed"]

    def _report_end(self, how: str) -> None:
        event("shadow-died", logging.ERROR, pid=self.pid, how=how, why=self._why)

    def close(self) -> None:
        """End the process, and close its sockets."""
        super().close()
        self.executions.close()
        self._received.close()
