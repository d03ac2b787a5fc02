"""Agent of a host, without Ray: the service that it runs, its reports, and the end of both."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import nnhal
from nnhal_fleet.agent import FleetError, HostAgent, KeptAddress, Orders
from nnhal_service.peers.fleet.member import Member
from nnhal_service.peers.fleet.members_file import MembersFile
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import has_ended

OTHER = Member("other", "elsewhere", "127.0.0.1:1", sessions=100)


class Registry:
    """Registry with one other member.

    Attributes:
        reports: the reports.
        left: number of reports of an end.
        drained: whether the member shall drain.
        is_down: whether it cannot be reached.
    """

    def __init__(self) -> None:
        self.reports: list[Member] = []
        self.left = 0
        self.drained = self.is_down = False
        self.lock = threading.Lock()

    def report(self, member: Member) -> Orders:
        if self.is_down:
            raise FleetError("down")
        self.reports.append(member)
        return Orders((OTHER, member), self.drained)

    def leave(self, id_: str) -> None:
        assert id_ == "own"
        self.left += 1

    def last(self) -> Member:
        return self.reports[-1]


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def agent(tmp_path: Path, registry: Registry) -> Iterator[HostAgent]:
    options = ["--backends", "CpuRef", "--cache-dir", str(tmp_path / "cache"), "--state-dir", str(tmp_path / "state")]
    agent = HostAgent(Member("own", "here", "", accelerators=("Npu",)), "127.0.0.1:0", tmp_path, registry, options)
    agent.start()
    try:
        assert wait_until(lambda: bool(registry.reports), 120), (tmp_path / "service.log").read_text()
        yield agent
    finally:
        agent.stop()
    assert agent.service_pid == 0


def reported(registry: Registry, **fields: object) -> bool:
    return wait_until(lambda: all(getattr(registry.last(), name) == value for name, value in fields.items()), 60)


@pytest.mark.slow
def test_an_agent_reports_drains_and_replaces_its_service(tmp_path: Path, agent: HostAgent, registry: Registry) -> None:
    first = registry.last()
    assert (first.id, first.host, first.accelerators, first.generation) == ("own", "here", ("Npu",), 1)
    assert first.backends.keys() == {"CpuRef"} and first.devices == {"nnhal": "CPU"} and first.free_bytes > 0
    members = MembersFile(tmp_path / "members" / "members.json")
    assert wait_until(lambda: members.table() is not None and len(members.table().members) == 2, 60)  # type: ignore[union-attr]
    with nnhal.connect(first.address, timeout=60) as device:
        assert reported(registry, sessions=1)
        assert device._connection.members == (OTHER.address,)
    assert reported(registry, known=2)

    registry.drained = True
    assert reported(registry, draining=True)
    registry.drained = False
    assert reported(registry, draining=False)

    registry.is_down = True
    with nnhal.connect(first.address, timeout=60):
        pass
    registry.is_down = False

    killed = agent.service_pid
    os.kill(killed, signal.SIGKILL)
    assert wait_until(lambda: registry.left > 0, 60)
    assert reported(registry, generation=2)
    assert agent.service_pid not in (0, killed) and has_ended(killed)
    assert registry.last().address == first.address, "clients know it"
    with nnhal.connect(registry.last().address, timeout=60):
        pass


def test_the_address_of_a_service_stays_unless_it_cannot_be_used(tmp_path: Path) -> None:
    address = KeptAddress("127.0.0.1:0", tmp_path / "address")
    assert address.next() == "127.0.0.1:0"
    address.note("127.0.0.1:7")
    assert [address.next() for _ in range(4)] == [*["127.0.0.1:7"] * 3, "127.0.0.1:0"]
    address.note("127.0.0.1:8")
    assert KeptAddress("127.0.0.1:0", tmp_path / "address").next() == "127.0.0.1:8"
    assert KeptAddress("0.0.0.0:9", tmp_path / "address").next() == "0.0.0.0:9"


def test_a_report_survives_json() -> None:
    member = replace(OTHER, models=frozenset(["ab"]), backends={"CpuAcc": "1"}, accelerators=("Npu",))
    assert Member.from_plain(member.to_plain()) == member
