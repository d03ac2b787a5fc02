"""The admin process, as its supervisor sees it: its start, its requests, and its restarts."""

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nnhal_service.admin.view import AdminError
from nnhal_service.log import event
from nnhal_service.settings import Settings
from nnhal_service.supervisor.admin.listener import AdminListener
from nnhal_service.supervisor.channel import Channel, Message
from nnhal_service.supervisor.child_process import ChildProcess, Fork
from nnhal_service.supervisor.worker_output import WorkerOutput

_MAX_ANSWER_BYTES = 2**17 - 2**10
"""Largest answer. A channel has messages of up to 2**17 bytes."""

Answer = Callable[[Message], Mapping[str, Any]]
"""Answers a request of the process. May raise AdminError."""


class AdminProcess(ChildProcess):
    """The admin process, as its supervisor sees it. Close it when done.

    Args:
        listener: its addresses, which are closed with it.
        answer: answers its requests.
    """

    def __init__(self, listener: AdminListener, answer: Answer) -> None:
        super().__init__()
        self._listener = listener
        self._answer = answer
        self._folder: Path | None = None

    @property
    def is_due(self) -> bool:
        """True if the process should be started now."""
        return bool(self._listener.sockets) and super().is_due

    def start(self, fork: Fork, settings: Settings, metrics: Path) -> tuple[Channel, WorkerOutput]:
        """Start the process, and return the channel to it and its output.

        Args:
            fork: has the process forked.
            settings: the settings.
            metrics: folder of the metrics of the supervisor.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="nnhal-admin-"))
        self.output = WorkerOutput(None)
        message = {
            "admin": str(self._folder),
            "settings": settings.model_dump(mode="json", exclude_unset=True),
            "metrics": str(metrics),
            "sockets": list(self._listener.sockets),
        }
        sockets = [each.fileno() for each in self._listener.sockets.values()]
        channel = self._start(fork, message, [self.output.write_end, *sockets])
        self.output.close_write_end()
        return channel, self.output

    def _handle(self, message: Message) -> None:
        if "request" in message and self.channel is not None:
            self.channel.send({**self._try_answer(message), "number": message.get("number")})

    def _try_answer(self, message: Message) -> Mapping[str, Any]:
        try:
            answer = self._answer(message)
        except AdminError as error:
            return {"error": str(error)}
        except Exception as error:  # whatever the process sends, the supervisor goes on
            event("admin-request-failed", logging.ERROR, why=f"{type(error).__name__}: {error}")
            return {"error": "the supervisor could not handle the request; see the log"}
        if len(json.dumps(answer)) > _MAX_ANSWER_BYTES:
            return {"error": "the answer of the supervisor is too long"}
        return answer

    def _report_end(self, how: str) -> None:
        event("admin-died", logging.ERROR, pid=self.pid, how=how)

    def _clean_up(self) -> None:
        super()._clean_up()
        if self.output is not None:
            self.output.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.output = self._folder = None

    def close(self) -> None:
        """End the process, and give its address up."""
        super().close()
        self._listener.close()
