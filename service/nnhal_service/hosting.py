"""Services that a supervisor provides to the server of a worker."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nnhal_driver.activity import ActivityTable
from nnhal_driver.model_probe import ModelProbe
from nnhal_driver.quarantine import Quarantine
from nnhal_driver.scheduling.quota_use import QuotaUse
from nnhal_service.identity.accounts import FindUse
from nnhal_service.metrics.worker_metrics import WorkerMetrics

Redirect = Callable[[str, int, bytes, str], str]
"""Returns the address to which to send a client, or "" to serve it here.

Its arguments are how the client has connected ("unix", or anything else for TCP), the number of sessions here, and the
token of the session that it resumes; empty for a new one; and its identity.
"""


def _nothing(identity: str = "") -> None:
    pass


@dataclass(frozen=True, slots=True)
class Hosting:
    """Services that a supervisor provides to the server of a worker.

    Attributes:
        addresses: addresses that the supervisor has reserved for the worker.
        slot: number of the worker, with which the tokens of its sessions end.
        redirect: decides where clients go.
        activities: table of the work in progress.
        quarantine: the models that have crashed a worker.
        prober: prepares and runs new models in other processes first; None to trust them.
        metrics: metrics of the worker. The server starts and closes them.
        inherited: descriptors of the addresses that are open already.
        temporary: folder for temporary files.
        claim: called with the identity of each new session, before it is opened. It may refuse.
        end_idle: called a while after the last session has ended.
        find_use: returns what an identity with quotas uses in other workers.
    """

    addresses: tuple[str, ...]
    slot: int
    redirect: Redirect
    activities: ActivityTable
    quarantine: Quarantine
    prober: ModelProbe | None
    inherited: Mapping[str, int] = field(default_factory=dict)
    temporary: Path = Path()
    metrics: WorkerMetrics = field(default_factory=WorkerMetrics)
    claim: Callable[[str], None] = _nothing
    end_idle: Callable[[], None] = _nothing
    find_use: FindUse = lambda identity: QuotaUse()
