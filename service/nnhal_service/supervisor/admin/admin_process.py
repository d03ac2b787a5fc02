"""The admin process, as its supervisor sees it: its start, its requests, and its restarts."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nnhal_service.channel import Message
from nnhal_service.log import event
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.settings import Settings
from nnhal_service.supervisor.admin.admin_listener import AdminListener
from nnhal_service.supervisor.child_process import ChildProcess
from nnhal_service.supervisor.template import ChildKind

_MAX_ANSWER_BYTES = 2**17 - 2**10
"""Largest answer. A channel has messages of up to 2**17 bytes."""

Answer = Callable[[Message], Mapping[str, Any]]
"""Answers a request of the process. May raise AdminError."""


class AdminProcess(ChildProcess):
    """The admin process, as its supervisor sees it. Close it when done.

    Args:
        listener: its addresses, which are closed with it.
        metrics: folder of the metrics of the supervisor.
    """

    def __init__(self, listener: AdminListener, answer: Answer, metrics: Path) -> None:
        super().__init__(ChildKind.ADMIN, has_output=True)
        self._listener = listener
        self._answer = answer
        self._message = {"metrics": str(metrics), "sockets": list(listener.sockets)}
        self._descriptors = [each.fileno() for each in listener.sockets.values()]

    def _is_wanted(self, settings: Settings) -> bool:
        return bool(self._listener.sockets)

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

    def close(self) -> None:
        """End the process, and give its address up."""
        super().close()
        self._listener.close()
