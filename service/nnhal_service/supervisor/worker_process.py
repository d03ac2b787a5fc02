"""One worker, as its supervisor sees it, and its specification."""

import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from nnhal_driver.activity import Activity, read_activities
from nnhal_service.channel import Channel
from nnhal_service.settings import Settings
from nnhal_service.supervisor.addresses import WorkerAddresses
from nnhal_service.supervisor.crash import STACKS_SIGNAL, read_crash_log
from nnhal_service.supervisor.scoreboard import Scoreboard, WorkerState, WorkerStatus
from nnhal_service.supervisor.template import ChildKind, Template
from nnhal_service.supervisor.worker_output import WorkerOutput

_STACKS_S = 0.2
"""Seconds for writing them."""


class WorkerSpec(BaseModel):
    """Everything that a worker must know.

    Attributes:
        row: its row of the scoreboard.
        generation: number of its start, over all workers.
        temporary: its folder for temporary files, which the supervisor removes.
        settings: settings of the service. Those that are not set remain so in a message.
        addresses: its addresses.
        inherited: the addresses that a service manager has opened, in the order of their descriptors.
        drained: whether it accepts no sessions until an operator resumes it.
        owner: digest of the only client that it serves, in hexadecimal; "" if it serves any.
        is_offender: whether this client is on probation.
    """

    model_config = ConfigDict(frozen=True)

    slot: int
    row: int
    generation: int
    supervisor: int
    temporary: Path
    settings: Settings
    addresses: WorkerAddresses
    inherited: tuple[str, ...]
    drained: bool
    owner: str = ""
    is_offender: bool = False


class WorkerProcess:
    """One worker. Close it when it has ended.

    Args:
        spec: describes it.
        requests: the sockets to the processes of the cache share and of the shadow.
        sockets: the inherited sockets, in the order of `spec.inherited`.

    Attributes:
        spec: describes it.
        channel: the supervisor's end of its channel.
        output: what its engines and plug-ins print.
        pid: id of its process; 0 until it has reported it.
        served_at: monotonic time at which it began to serve, or None.
        is_gone: whether its process has ended before it reported its id.
        backends: ids of its backends, in the order of their numbers in the table of its work.
        stop_by: monotonic time at which it is killed, if it has been told to stop.
        used_at: monotonic time at which it had a session last.
        culprits: the work for which the supervisor has killed it, or which may have crashed it.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        scoreboard: Scoreboard,
        template: Template,
        requests: tuple[int, int],
        sockets: Sequence[int],
    ) -> None:
        self.spec = spec
        self.pid = 0
        self.is_gone = False
        self.failure = ""
        self.backends: list[str] = []
        self.stop_by: float | None = None
        self.started_at = time.monotonic()
        self.served_at: float | None = None
        self.killed_because = ""
        self.used_at = 0.0
        self.culprits: list[Activity] = []
        self._kill_at = 0.0
        self._scoreboard = scoreboard
        self._crash_log = os.memfd_create(f"nnhal-crash-log-{spec.slot}")
        scoreboard.clear(spec.row)
        self.channel, others = Channel.pair()
        self.output = WorkerOutput(spec.slot)
        descriptors = [others.fileno(), self._crash_log, self.output.write_end, *requests, *sockets]
        template.fork(ChildKind.WORKER, spec.model_dump(mode="json", exclude_unset=True), descriptors)
        self.output.close_write_end()
        others.close()

    @property
    def status(self) -> WorkerStatus:
        """Its report on itself."""
        return self._scoreboard.read(self.spec.row)

    @property
    def is_serving(self) -> bool:
        """True if it serves, and has not been told to stop."""
        return self.served_at is not None and self.stop_by is None

    @property
    def is_open(self) -> bool:
        """True if it takes new clients."""
        return self.is_serving and not self.killed_because and self.status.state is WorkerState.SERVING

    @property
    def state(self) -> str:
        """State: "starting", "serving", or "retiring" if it has been told to stop."""
        if self.stop_by is not None:
            return "retiring"
        return "starting" if self.served_at is None else "serving"

    def activities(self) -> list[Activity]:
        """Return its work in progress."""
        return read_activities(self._scoreboard.activities(self.spec.row), self.backends)

    def crash_log(self) -> str:
        """Return the stacks that it has written, or ""."""
        return read_crash_log(self._crash_log)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still exists."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, grace_s: float) -> None:
        """Tell it to stop. The supervisor kills it if it has not ended after some seconds."""
        self.stop_by = time.monotonic() + grace_s
        self.send_signal(signal.SIGTERM)

    def schedule_kill(self, reason: str, culprits: list[Activity]) -> None:
        """Have it write the stacks of its threads. `kill_if_due` kills it soon after."""
        self.killed_because, self.culprits = reason, culprits
        self._kill_at = time.monotonic() + _STACKS_S
        self.send_signal(STACKS_SIGNAL)

    def kill_if_due(self) -> None:
        """Kill it if it has had time to write the stacks."""
        if time.monotonic() >= self._kill_at:
            self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Free everything that belonged to it."""
        shutil.rmtree(self.spec.temporary, ignore_errors=True)
        self._scoreboard.clear(self.spec.row)
        self.channel.close()
        os.close(self._crash_log)
        self.output.close()
