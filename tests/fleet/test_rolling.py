"""Replacement of the services of a fleet, one after the other."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nnhal_fleet.agent import FleetError
from nnhal_fleet.rolling import drain_members, is_complete, replace_services, resume_members


class ImaginedFleet:
    """A fleet whose members do at each look what they were told before.

    Attributes:
        steps: what was done, in order.
        stays: id of a member whose clients do not leave.
    """

    def __init__(self, *ids: str) -> None:
        self.steps: list[str] = []
        self.stays = ""
        self._members: dict[str, dict[str, Any]] = {
            id_: {"id": id_, "sessions": 2, "draining": False, "generation": 1} for id_ in ids
        }
        self._restarting = ""

    def status(self) -> Mapping[str, Any]:
        serving = [dict(member) for id_, member in self._members.items() if id_ != self._restarting]
        for id_, member in self._members.items():
            if member["draining"] and id_ != self.stays:
                member["sessions"] = 0
        if self._restarting:
            self._members[self._restarting]["generation"] += 1
            self._restarting = ""
        return {"members": serving}

    def set_drained(self, ids: Sequence[str], *, drained: bool) -> None:
        self.steps.append(f"{'drain' if drained else 'resume'} {' '.join(ids)}")
        for id_ in ids:
            self._members[id_]["draining"] = drained

    def restart(self, id_: str) -> None:
        assert self._members[id_]["sessions"] == 0, "its clients must have left"
        assert sum(member["draining"] for member in self._members.values()) == 1, "the others must serve"
        self.steps.append(f"restart {id_}")
        self._restarting = id_


def test_members_are_replaced_one_after_the_other() -> None:
    fleet = ImaginedFleet("a", "b")
    done: list[str] = []
    replace_services(fleet, ["a", "b"], 60, done.append)
    assert fleet.steps == ["drain a", "restart a", "resume a", "drain b", "restart b", "resume b"]
    assert done == ["a", "b"]


def test_a_member_whose_clients_stay_is_not_replaced() -> None:
    fleet = ImaginedFleet("a", "b")
    fleet.stays = "a"
    with pytest.raises(FleetError, match="some clients of a stay"):
        replace_services(fleet, ["a", "b"], 0.3)
    assert fleet.steps == ["drain a"]


def test_drain_and_resume() -> None:
    fleet = ImaginedFleet("a", "b")
    drain_members(fleet, ["a"], 60)
    resume_members(fleet, ["a"], 60)
    assert fleet.steps == ["drain a", "resume a"]


@pytest.mark.parametrize(
    ("hosts", "known", "expected"),
    [(["a", "b"], [2, 2], True), (["a", "b"], [2, 1], False), (["a", "b", "c"], [3, 3], False), ([], [], False)],
)
def test_a_fleet_is_complete_once_all_members_know_each_other(
    hosts: list[str], known: list[int], expected: bool
) -> None:
    members = [{"id": id_, "known": count} for id_, count in zip(hosts, known, strict=False)]
    assert is_complete({"hosts": hosts, "members": members, "scaling": None}) == expected
    assert not is_complete({"hosts": hosts, "members": members, "scaling": {"hosts": 3}}), "another host will come"
