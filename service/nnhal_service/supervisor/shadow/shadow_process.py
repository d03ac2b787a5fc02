"""The process of the shadow, as its supervisor sees it."""

import logging

from nnhal_service.channel import Message
from nnhal_service.log import event
from nnhal_service.metrics.supervisor_metrics import SupervisorMetrics
from nnhal_service.settings import Settings
from nnhal_service.supervisor.child_process import PacketProcess
from nnhal_service.supervisor.template import ChildKind

_BUFFER_BYTES = 2**16
"""Size of the queue: about a hundred executions with their descriptors."""


class ShadowProcess(PacketProcess):
    """The process of the shadow, or the place for one. The packets are executions; those without room are dropped.

    Close it when done.
    """

    def __init__(self, metrics: SupervisorMetrics) -> None:
        super().__init__(ChildKind.SHADOW, metrics, _BUFFER_BYTES, has_output=True)
        self._why = ""

    def _is_wanted(self, settings: Settings) -> bool:
        return settings.shadow is not None

    def _handle(self, message: Message) -> None:
        super()._handle(message)
        self._why = message.get("failed", "")

    def _report_end(self, how: str) -> None:
        event("shadow-died", logging.ERROR, pid=self.pid, how=how, why=self._why)
        self._why = ""
