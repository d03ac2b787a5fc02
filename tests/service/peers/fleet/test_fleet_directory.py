"""Directory of a fleet: the decision of a worker where a client goes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nnhal.errors import HalError
from nnhal.v1.session_pb2 import OpenRequest, SessionNeeds
from nnhal_service.peers.fleet.fleet_directory import FleetDirectory
from nnhal_service.peers.fleet.member import Member, MemberTable
from nnhal_service.peers.fleet.members_file import STALE_S, MembersFile, write_members

HERE, OTHER = Member("a", "a", "a:1", sessions=5), Member("b", "b", "b:1", backends={"Npu": "1"})
OPEN = OpenRequest(accept_redirect=True)


class Fleet:
    def __init__(self, path: Path) -> None:
        self.path = path / "members.json"
        self.drained = False
        self.directory = FleetDirectory(MembersFile(self.path), lambda: self.drained)
        self.write(HERE, OTHER)

    def write(self, *members: Member) -> None:
        write_members(self.path, MemberTable("a", members))

    def choose(self, request: OpenRequest = OPEN, sessions: int = 0, *, is_local: bool = False) -> str:
        found = self.directory.choose(request, sessions, is_local=is_local)
        return found.member.id if found is not None and found.member is not None else ""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_a_client_goes_to_the_least_loaded_member_once(fleet: Fleet) -> None:
    assert fleet.choose() == "b"
    assert fleet.choose(OpenRequest(accept_redirect=True, placed=True)) == "", "another member has sent it here"


def test_clients_that_were_sent_away_count_there(fleet: Fleet) -> None:
    assert [fleet.choose() for _ in range(8)].count("b") in (4, 5), "then the loads are equal"


def test_sessions_that_are_not_in_the_report_yet_count(fleet: Fleet) -> None:
    fleet.write(replace(HERE, sessions=0), OTHER)
    assert fleet.choose(sessions=0) == ""
    assert fleet.choose(sessions=5) == "b"


def test_a_full_fleet_takes_no_new_clients(fleet: Fleet) -> None:
    full = MemberTable("a", (HERE, OTHER), "all 2 hosts of its limit are busy")
    write_members(fleet.path, full)
    with pytest.raises(HalError, match=r"RESOURCE_EXHAUSTED_TRANSIENT: the fleet takes no new clients: all 2 hosts "):
        fleet.choose()
    assert fleet.choose(OpenRequest(accept_redirect=True, continues=True)) == "b", "it had a session before"
    assert fleet.choose(OpenRequest(accept_redirect=True, placed=True)) == ""
    old = fleet.path.stat().st_mtime - STALE_S - 1
    os.utime(fleet.path, (old, old))
    fleet.choose()


def test_a_client_on_this_machine_stays_unless_it_cannot(fleet: Fleet) -> None:
    assert fleet.choose(is_local=True) == ""
    assert fleet.choose(OpenRequest(needs=SessionNeeds(accelerator="Npu")), is_local=True) == "b"
    fleet.drained = True
    assert fleet.choose(is_local=True) == "b"


def test_old_loads_do_not_count(fleet: Fleet) -> None:
    os.utime(fleet.path, (1, 1))
    assert STALE_S < 1e9 and fleet.choose() == ""
    fleet.drained = True
    assert fleet.choose() == "b"


def test_needs_that_no_member_has(fleet: Fleet) -> None:
    with pytest.raises(HalError, match=r"DEVICE_UNAVAILABLE: the fleet has no place .*it has no Gpu"):
        fleet.choose(OpenRequest(needs=SessionNeeds(accelerator="Gpu")))


def test_without_members_clients_stay(fleet: Fleet) -> None:
    fleet.drained = True
    fleet.write(replace(HERE))
    assert fleet.choose() == "", "all members drain: the service says so itself"
    fleet.path.unlink()
    assert fleet.choose() == "" and fleet.directory.others() == []


def test_clients_learn_of_other_members_that_do_not_drain(fleet: Fleet) -> None:
    more = [Member(f"m{number}", "m", f"m{number}:1") for number in range(20)]
    fleet.write(HERE, OTHER, Member("c", "c", "c:1", draining=True))
    assert fleet.directory.others() == ["b:1"]
    fleet.write(HERE, *more)
    others = fleet.directory.others()
    assert len(set(others)) == 8 and set(others) <= {member.address for member in more}


def test_addresses_that_a_client_knows_stay_while_they_are_right(fleet: Fleet) -> None:
    more = [Member(f"m{number}", "m", f"m{number}:1") for number in range(20)]
    fleet.write(HERE, *more)
    known = [member.address for member in more[:7]]
    others = fleet.directory.others(["gone:1", *known])
    assert others[:7] == known and len(set(others)) == 8
    assert fleet.directory.others(others) == others
    fleet.write(HERE, *more[3:5])
    assert fleet.directory.others(others) == known[3:5]
