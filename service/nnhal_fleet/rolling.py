"""Replacement of the services of a fleet, one after the other, without a failed call."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from nnhal_fleet.agent import FleetError
from nnhal_fleet.registry import MAX_TOLD

_POLL_S = 0.1

Report = Mapping[str, Any]


class OperatedFleet(Protocol):
    """A fleet, for operators: see `nnhal_fleet.ray_cluster.connection.FleetConnection`."""

    def status(self) -> Report:
        """Return the members."""

    def set_drained(self, ids: Sequence[str], *, drained: bool) -> None:
        """Have the services of members take no sessions, or take sessions again."""

    def restart(self, id_: str) -> None:
        """Replace the service of a member in order."""


def wait_for(fleet: OperatedFleet, is_done: Callable[[Report], bool], timeout_s: float, problem: str) -> Report:
    """Return the state of a fleet as soon as a condition holds.

    Raises:
        FleetError: it does not hold in time.
    """
    end = time.monotonic() + timeout_s
    while not is_done(report := fleet.status()):
        if time.monotonic() >= end:
            raise FleetError(problem)
        time.sleep(_POLL_S)
    return report


def is_complete(report: Report) -> bool:
    """Return whether all hosts serve, and all members know each other, so that each tells its clients of the others.

    In a large fleet, each knows some of them.
    """
    hosts, members = report["hosts"], report["members"]
    return (
        len(hosts) >= (report["scaling"] or {"hosts": 1})["hosts"]
        and {member["id"] for member in members} == set(hosts)
        and all(member["known"] >= min(len(hosts), MAX_TOLD) for member in members)
    )


def drain_members(fleet: OperatedFleet, ids: Sequence[str], timeout_s: float) -> None:
    """Send the clients of members to others, and wait until they have left.

    Raises:
        FleetError: some have not left in time.
    """
    fleet.set_drained(ids, drained=True)

    def have_left(report: Report) -> bool:
        chosen = (member for member in report["members"] if member["id"] in ids)
        return all(member["draining"] and not member["sessions"] for member in chosen)

    wait_for(fleet, have_left, timeout_s, f"some clients of {', '.join(ids)} stay")


def resume_members(fleet: OperatedFleet, ids: Sequence[str], timeout_s: float) -> None:
    """Let members take sessions again, and wait until they do.

    Raises:
        FleetError: some do not in time.
    """
    fleet.set_drained(ids, drained=False)
    wait_for(fleet, lambda report: _serve(report, ids), timeout_s, f"some of {', '.join(ids)} do not serve")


def replace_services(
    fleet: OperatedFleet, ids: Sequence[str], timeout_s: float, done: Callable[[str], None] = lambda id_: None
) -> None:
    """Drain members and start their services again, one after the other.

    Each step may take `timeout_s` seconds. `done` is called with the id of each member that serves again.

    Raises:
        FleetError: a member does not leave or serve in time. It drains then, and the others go on.
    """
    for id_ in ids:
        drain_members(fleet, [id_], timeout_s)
        _replace_service(fleet, id_, timeout_s)
        done(id_)


def _replace_service(fleet: OperatedFleet, id_: str, timeout_s: float) -> None:
    """Start the service of a member again, and wait until it serves."""
    before = _generation(fleet.status(), id_)
    fleet.restart(id_)
    fleet.set_drained([id_], drained=False)

    def serves_again(report: Report) -> bool:
        return _generation(report, id_) > before and _serve(report, [id_])

    wait_for(fleet, serves_again, timeout_s, f"{id_} does not serve again")


def _serve(report: Report, ids: Sequence[str]) -> bool:
    return {member["id"] for member in report["members"] if not member["draining"]}.issuperset(ids)


def _generation(report: Report, id_: str) -> int:
    """Return the number of starts of the service of a member; 0 while it does not serve."""
    return next((int(member["generation"]) for member in report["members"] if member["id"] == id_), 0)
