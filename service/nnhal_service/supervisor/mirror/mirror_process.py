"""The process that copies models, as its supervisor sees it."""

import logging

from nnhal_service.channel import Message
from nnhal_service.log import event
from nnhal_service.settings import Settings
from nnhal_service.supervisor.child_process import ChildProcess
from nnhal_service.supervisor.template import ChildKind


class MirrorProcess(ChildProcess):
    """The process that copies models, or the place for one. Close it when done."""

    def __init__(self) -> None:
        super().__init__(ChildKind.MIRROR)

    def _is_wanted(self, settings: Settings) -> bool:
        return settings.models_url is not None

    def _handle(self, message: Message) -> None:
        """Ignore a message: the process has none."""

    def _report_end(self, how: str) -> None:
        event("mirror-died", logging.ERROR, pid=self.pid, how=how)
