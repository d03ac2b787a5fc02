"""Specification of a worker, which the supervisor sends to the template."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnhal_service.settings import Settings
from nnhal_service.supervisor.addresses import WorkerAddresses


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Everything that a worker must know.

    Attributes:
        slot: its number.
        row: its row of the scoreboard.
        generation: number of its start, over all workers.
        supervisor: id of the process of the supervisor.
        temporary: its folder for temporary files, which the supervisor removes.
        settings: settings of the service.
        addresses: the addresses of each worker, by slot.
        inherited: the addresses that a service manager has opened, in the order of their descriptors.
        drained: whether it accepts no sessions until an operator resumes it.
    """

    slot: int
    row: int
    generation: int
    supervisor: int
    temporary: Path
    settings: Settings
    addresses: tuple[WorkerAddresses, ...]
    inherited: tuple[str, ...] = ()
    drained: bool = False

    def to_json(self) -> Mapping[str, Any]:
        """Return the values as a message. Settings that are not set remain so."""
        return {
            "slot": self.slot,
            "row": self.row,
            "generation": self.generation,
            "supervisor": self.supervisor,
            "temporary": str(self.temporary),
            "settings": self.settings.model_dump(mode="json", exclude_unset=True),
            "addresses": [asdict(addresses) for addresses in self.addresses],
            "inherited": list(self.inherited),
            "drained": self.drained,
        }

    @staticmethod
    def from_json(message: Mapping[str, Any]) -> "WorkerSpec":
        """Return the specification in a message."""
        addresses = tuple(
            WorkerAddresses(tuple(each["listen"]), each["tcp"], each["unix"]) for each in message["addresses"]
        )
        settings = Settings.model_validate(message["settings"])
        return WorkerSpec(
            message["slot"],
            message["row"],
            message["generation"],
            message["supervisor"],
            Path(message["temporary"]),
            settings,
            addresses,
            tuple(message["inherited"]),
            message["drained"],
        )
