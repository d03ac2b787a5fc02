"""Two services of a fleet, in processes of their own."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_service.peers.fleet.member import Member, MemberTable
from nnhal_service.peers.fleet.members_file import write_members
from tests.concurrency import wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.service_process import (
    Service,
    has_ended,
    start_service,
    worker_pids,
)

X = tensor(T.TENSOR_FLOAT32, (2,))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
ONES = np.ones(2, np.float32)


@dataclass
class Host:
    """A service, and its record."""

    folder: Path
    service: Service
    record: Member

    @property
    def target(self) -> str:
        return self.service.target

    def kill(self) -> None:
        """Kill the service, and wait until all of its workers have ended."""
        workers = worker_pids(self.service.process.pid)
        self.service.process.kill()
        assert wait_until(lambda: all(map(has_ended, workers)), 60)


@dataclass
class Pair:
    """Two hosts. The tables that their workers read are written by `publish`."""

    hosts: list[Host] = field(default_factory=list)

    def start(self, folder: Path, id_: str, *options: str) -> None:
        """Start a service."""
        (folder / "members").mkdir(parents=True)
        service = start_service(folder, "--fleet-members", str(folder / "members" / "members.json"), *options)
        self.hosts.append(Host(folder, service, Member(id_, id_, service.target, free_bytes=2**30)))

    def publish(self, *records: Member, refusal: str = "") -> None:
        """Tell all services about records, by default the present ones, and why new clients are refused."""
        for host in self.hosts:
            table = MemberTable(host.record.id, records or tuple(each.record for each in self.hosts), refusal)
            write_members(host.folder / "members" / "members.json", table)


def loaded(host: Host, sessions: int) -> Member:
    record = host.record
    return Member(record.id, record.host, record.address, free_bytes=2**30, sessions=sessions)
