"""Two services of a fleet: clients go to the best one, and go on at the other one when it dies."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.client.core.cache import model_digest
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_service.fleet.member import Member, MemberTable
from nnhal_service.fleet.members_file import write_members
from tests.concurrency import wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.service_process import (
    Service,
    has_ended,
    start_service,
    stop_service,
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

    def publish(self, *records: Member) -> None:
        """Tell all services about records, by default the present ones."""
        for host in self.hosts:
            table = MemberTable(host.record.id, records or tuple(each.record for each in self.hosts))
            write_members(host.folder / "members" / "members.json", table)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair()
    try:
        pair.start(tmp_path / "a", "a", "--backends", "CpuRef")
        pair.start(tmp_path / "b", "b", "--backends", "CpuRef", "--workers", "2")
        pair.publish()
        yield pair
    finally:
        for host in pair.hosts:
            stop_service(host.service)


def loaded(host: Host, sessions: int) -> Member:
    record = host.record
    return Member(record.id, record.host, record.address, free_bytes=2**30, sessions=sessions)


def test_a_client_goes_to_the_other_service_and_back_when_it_dies(pair: Pair) -> None:
    a, b = pair.hosts
    pair.publish(loaded(a, 50), b.record)
    with nnhal.connect(a.target, timeout=60) as device:
        assert wait_until(lambda: a.service.logged("session-placed"), 60)
        assert device._connection.members == (a.target,)
        assert device._connection.target != b.target, "it is at the private address of a worker"
        prepared = device.prepare(ADD, cache=True).result(60)
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        pair.publish(a.record)
        b.kill()
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        assert device._connection.target == a.target


async def test_a_client_goes_on_when_the_only_address_that_it_was_given_is_gone(pair: Pair) -> None:
    a, _ = pair.hosts
    async with nnhal.aio.connect(f"grpc://{a.target}", timeout=60) as device:
        assert device._connection.target == a.target
        prepared = await device.prepare(ADD)
        np.testing.assert_array_equal((await prepared.execute([ONES, ONES]))[0], 2 * ONES)
        a.kill()
        np.testing.assert_array_equal((await prepared.execute([ONES, ONES]))[0], 2 * ONES)
        assert device._connection.members == (a.target,), "these are the addresses that b knows"


def test_needs_choose_the_service(pair: Pair) -> None:
    a, b = pair.hosts
    warm = Member("b", "b", b.target, free_bytes=2**30, sessions=2, models=frozenset([model_digest(ADD).hex()]))
    pair.publish(a.record, warm)
    with nnhal.connect(a.target, timeout=60, model=ADD) as device:
        assert device._connection.members == (a.target,), "these are the addresses that b knows"
    with pytest.raises(nnhal.HalError, match=r"DEVICE_UNAVAILABLE: the fleet has no place .*has no Npu"):
        nnhal.connect(a.target, timeout=60, accelerator="Npu")
