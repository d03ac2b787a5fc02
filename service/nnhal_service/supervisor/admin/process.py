"""The admin process, as its supervisor sees it: its start, its requests, and its restarts."""

import json
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnhal_service.admin.view import AdminError
from nnhal_service.log import event
from nnhal_service.settings import Settings
from nnhal_service.supervisor.admin.listener import AdminListener
from nnhal_service.supervisor.channel import Channel, Message
from nnhal_service.supervisor.worker_output import WorkerOutput

_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 5.0
_STABLE_S = 10.0
"""Seconds after which the process counts as stable. Its next end is then followed by a start at once."""
_MAX_ANSWER_BYTES = 2**17 - 2**10
"""Largest answer. A channel has messages of up to 2**17 bytes."""

Fork = Callable[[Message, Sequence[int]], None]
"""Has a process forked, with its message and its descriptors."""
Answer = Callable[[Message], Mapping[str, Any]]
"""Answers a request of the process. May raise AdminError."""


class AdminProcess:
    """The admin process, as its supervisor sees it. Close it when done.

    Args:
        listener: its addresses, which are closed with it.
        answer: answers its requests.

    Attributes:
        channel: the supervisor's end of the channel to the process; None while there is none.
        output: what its libraries print; None while there is no process.
        pid: id of the process; 0 while there is none.
    """

    def __init__(self, listener: AdminListener, answer: Answer) -> None:
        self.channel: Channel | None = None
        self.output: WorkerOutput | None = None
        self.pid = 0
        self._listener = listener
        self._answer = answer
        self._folder: Path | None = None
        self._started_at = 0.0
        self._start_at = 0.0
        self._ends = 0
        self._is_replaced = False

    @property
    def is_due(self) -> bool:
        """True if the process should be started now."""
        return bool(self._listener.sockets) and self.channel is None and time.monotonic() >= self._start_at

    def start(self, fork: Fork, settings: Settings, metrics: Path) -> tuple[Channel, WorkerOutput]:
        """Start the process, and return the channel to it and its output.

        Args:
            fork: has the process forked.
            settings: the settings.
            metrics: folder of the metrics of the supervisor.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="nnhal-admin-"))
        self._started_at = time.monotonic()
        self.channel, other = Channel.pair()
        self.output = WorkerOutput(None)
        message = {
            "admin": str(self._folder),
            "supervisor": os.getpid(),
            "settings": settings.model_dump(mode="json", exclude_unset=True),
            "metrics": str(metrics),
            "sockets": list(self._listener.sockets),
        }
        sockets = [each.fileno() for each in self._listener.sockets.values()]
        fork(message, [other.fileno(), self.output.write_end, *sockets])
        self.output.close_write_end()
        other.close()
        return self.channel, self.output

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
        elif "request" in message:
            self.channel.send({**self._try_answer(message), "number": message.get("number")})
        return True

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

    def end(self) -> int:
        """End the process, which has a process id, and return its status."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]

    def replace(self) -> None:
        """Have the process end, so that its successor has the current settings. Connections wait for it."""
        if self.pid:
            self._is_replaced = True
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def note_end(self, how: str) -> None:
        """Clean up after the process, and schedule the next start."""
        if self._is_replaced:
            self._is_replaced = False
            self._clean_up()
            return
        served_s = time.monotonic() - self._started_at
        self._ends = 0 if served_s >= _STABLE_S else self._ends + 1
        delay_s = min(_FIRST_DELAY_S * 2.0 ** (self._ends - 1), _MAX_DELAY_S) if self._ends else 0.0
        event("admin-died", logging.ERROR, pid=self.pid, how=how)
        self._start_at = time.monotonic() + delay_s
        self._clean_up()

    def _clean_up(self) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self.channel is not None:
            self.channel.close()
        if self.output is not None:
            self.output.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.channel, self.output, self.pid, self._folder = None, None, 0, None

    def close(self) -> None:
        """End the process, and give its address up."""
        self._clean_up()
        self._listener.close()
