"""A process of a service besides its workers, as the supervisor sees it: its start, its end, and its restarts."""

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nnhal_service.channel import Channel, Message
from nnhal_service.metrics.supervisor_metrics import SupervisorMetrics
from nnhal_service.settings import Settings
from nnhal_service.supervisor.restarts import RestartPolicy
from nnhal_service.supervisor.template import ChildKind, Template
from nnhal_service.supervisor.worker_output import WorkerOutput


class ChildProcess:
    """A process, or the place for one. Close it when done.

    Attributes:
        channel: the supervisor's end of the channel to the process; None while there is none.
        output: what its libraries print; None while there is no process, or if it goes to the log as it is.
        pid: id of the process; 0 while there is none.
    """

    def __init__(self, kind: ChildKind, *, has_output: bool = False) -> None:
        self.channel: Channel | None = None
        self.output: WorkerOutput | None = None
        self.pid = 0
        self._kind = kind
        self._has_output = has_output
        self._descriptors: Sequence[int] = ()
        self._message: Message = {}
        self._folder: Path | None = None
        self._started_at = 0.0
        self._start_at = 0.0
        self._restarts = RestartPolicy()
        self._is_replaced = False

    def is_due(self, settings: Settings) -> bool:
        """Return whether the process should be started now."""
        return self.channel is None and time.monotonic() >= self._start_at and self._is_wanted(settings)

    def _is_wanted(self, settings: Settings) -> bool:
        """Return whether the service has such a process."""
        raise NotImplementedError

    def start(self, template: Template, settings: Settings) -> None:
        """Start the process with a private folder, which its message names besides the settings."""
        self._started_at = time.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix=f"nnhal-{self._kind}-"))
        self.channel, other = Channel.pair()
        descriptors = [other.fileno(), *self._descriptors]
        if self._has_output:
            self.output = WorkerOutput(self._kind)
            descriptors.insert(1, self.output.write_end)
        values = settings.model_dump(mode="json", exclude_unset=True)
        template.fork(self._kind, {"settings": values, "folder": str(self._folder), **self._message}, descriptors)
        other.close()
        if self.output is not None:
            self.output.close_write_end()

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
        now = time.monotonic()
        self._report_end(how)
        self._start_at = now + self._restarts.delay(now - self._started_at, unexplained=True)
        self._clean_up()

    def _report_end(self, how: str) -> None:
        """Log that the process has ended by itself."""
        raise NotImplementedError

    def _clean_up(self) -> None:
        self._send_signal(signal.SIGKILL)
        if self.channel is not None:
            self.channel.close()
        if self.output is not None:
            self.output.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.channel = self.output = self._folder = None
        self.pid = 0

    def close(self) -> None:
        """End the process."""
        self._clean_up()


class PacketProcess(ChildProcess):
    """A process for packets of workers, or the place for one. Close it when done.

    Attributes:
        packets: the socket to which workers send them. They wait there while there is no process.
    """

    def __init__(self, kind: ChildKind, metrics: SupervisorMetrics, buffer_bytes: int, *, has_output: bool) -> None:
        super().__init__(kind, has_output=has_output)
        self.packets, self._received = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.packets.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        self._descriptors = [self._received.fileno()]
        self._metrics = metrics

    def _handle(self, message: Message) -> None:
        if "counts" in message:
            self._metrics.add_process(message["counts"], message.get("gauges", {}))

    def close(self) -> None:
        """End the process, and close its sockets."""
        super().close()
        self.packets.close()
        self._received.close()
