"""Specification of a worker, which the supervisor sends to the template."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from nnhal_service.settings import Settings
from nnhal_service.supervisor.addresses import WorkerAddresses


class WorkerSpec(BaseModel):
    """Everything that a worker must know.

    Attributes:
        row: its row of the scoreboard.
        generation: number of its start, over all workers.
        temporary: its folder for temporary files, which the supervisor removes.
        settings: settings of the service. Those that are not set remain so in a message.
        addresses: the addresses of each worker, by slot.
        inherited: the addresses that a service manager has opened, in the order of their descriptors.
        drained: whether it accepts no sessions until an operator resumes it.
    """

    model_config = ConfigDict(frozen=True)

    slot: int
    row: int
    generation: int
    supervisor: int
    temporary: Path
    settings: Settings
    addresses: tuple[WorkerAddresses, ...]
    inherited: tuple[str, ...]
    drained: bool
