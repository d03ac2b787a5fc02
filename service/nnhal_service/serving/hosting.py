"""Services that a supervisor provides to the server of a worker."""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nnhal.v1 import session_pb2
from nnhal_driver.activity import ActivityTable
from nnhal_driver.backends.engine_process import EngineLauncher
from nnhal_driver.quarantine import ModelProbe, NoQuarantine, Quarantine
from nnhal_driver.scheduling.quota_use import QuotaUse
from nnhal_service.identity.accounts import FindUse
from nnhal_service.metrics.worker_metrics import WorkerMetrics


class Redirector(Protocol):
    """Decision where clients go. Thread safe."""

    def choose(
        self, request: session_pb2.OpenRequest, kind: str, sessions: int, client: bytes
    ) -> session_pb2.SessionRedirect | None:
        """Return where to send a client, which accepts a redirect, or None to serve it here.

        Its kind of connection is "unix", or anything else for TCP. There are some sessions here. `client` is its
        digest. Blocks while a worker starts for it.

        Raises:
            HalError: no worker is free for the client, or no service of a fleet has what the client needs.
        """

    def members(self, known: Sequence[str] = ()) -> Sequence[str]:
        """Return the addresses of other services that can take over when this one is gone. Known ones stay."""

    @property
    def member(self) -> str:
        """Id of this service in its fleet, or ""."""


@dataclass(frozen=True, slots=True)
class Hosting:
    """Services that a supervisor provides to the server of a worker. The defaults are for one without a supervisor.

    Attributes:
        addresses: addresses that the supervisor has reserved for the worker; None if there is no supervisor.
        slot: number of the worker, with which the tokens of its sessions end.
        redirect: decides where clients go; None to serve them here.
        activities: table of the work in progress; None to keep none.
        prober: prepares and runs new models in other processes first; None to trust them.
        metrics: metrics of the worker. The server starts and closes them.
        inherited: descriptors of the addresses that are open already.
        temporary: folder for temporary files.
        claim: called with the digest of the client of each new session, before it is opened. It may refuse.
        find_use: returns what an identity with quotas uses in other workers.
        engines: launches engines in processes of their own; None if there are none.
        is_shared: whether this process may serve several owners of models.
        choices: file with the choices for models by name that all workers share; None if there is one process.
        share: the socket to the process of the cache share; None if there is none.
        shadow: the socket to the process of the shadow; None if there is none.
    """

    addresses: tuple[str, ...] | None = None
    slot: int = 0
    redirect: Redirector | None = None
    activities: ActivityTable | None = None
    quarantine: Quarantine = field(default_factory=NoQuarantine)
    prober: ModelProbe | None = None
    inherited: Mapping[str, int] = field(default_factory=dict)
    temporary: Path = Path()
    metrics: WorkerMetrics = field(default_factory=WorkerMetrics)
    claim: Callable[[bytes], None] = lambda client: None
    find_use: FindUse = lambda identity: QuotaUse()
    engines: EngineLauncher | None = None
    is_shared: bool = False
    choices: Path | None = None
    share: socket.socket | None = None
    shadow: socket.socket | None = None

    @property
    def is_supervised(self) -> bool:
        """True if the server is that of a worker."""
        return self.addresses is not None
