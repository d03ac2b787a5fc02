"""Agent of a host: runs its service, reports to the fleet, and tells the service who the other members are."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import grpc

from nnhal.address import Address
from nnhal.admin.v1 import admin_pb2
from nnhal_fleet.registry import report_interval_s
from nnhal_fleet.service_process import ServiceProcess
from nnhal_service.peers.fleet.member import Member, MemberTable
from nnhal_service.peers.fleet.member_report import CHANNEL_OPTIONS, MemberReader
from nnhal_service.peers.fleet.members_file import write_members

_log = logging.getLogger(__name__)

_ADMIN_TIMEOUT_S = 5.0
_MAX_FAILURES = 3
"""Starts at the address of before, until a service gets another one."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Answer of the fleet to a report.

    Attributes:
        members: members that it shall know, also the one that has reported.
        drained: whether its service shall take no sessions.
        refusal: why the fleet takes no new clients, or "".
        interval_s: seconds until the next report.
    """

    members: tuple[Member, ...]
    drained: bool = False
    refusal: str = ""
    interval_s: float = report_interval_s(1)


class FleetLink(Protocol):
    """Connection of an agent to the registry of the fleet."""

    def report(self, member: Member) -> Orders:
        """Report on a member.

        Raises:
            FleetError: the registry cannot be reached.
        """

    def leave(self, id_: str) -> None:
        """Tell that the service of a member has ended.

        Raises:
            FleetError: as for `report`.
        """


class FleetError(Exception):
    """A part of the fleet that cannot be reached. The text says why."""


class KeptAddress:
    """Address of a service that stays the same when it starts again, also if its port was chosen by the system.

    Clients know it. It changes only when several starts in a row have failed, because another program has the port.

    Args:
        given: the address that the operator gave, perhaps with port 0.
        file: file that keeps the address for the next agent of the host.
    """

    def __init__(self, given: str, file: Path) -> None:
        self._given = given
        self._file = file
        self._failures = 0

    def next(self) -> str:
        """Return the address for the next start."""
        self._failures += 1
        if self._failures > _MAX_FAILURES or not self._file.exists():
            return self._given
        kept = Address.parse(self._file.read_text("utf-8"))
        given = Address.parse(self._given)
        return given.with_port(given.port or kept.port)

    def note(self, address: str) -> None:
        """Keep the address at which the service listens."""
        self._failures = 0
        self._file.write_text(address, "utf-8")


class HostAgent:
    """Agent of one host. Call `start` first, and `stop` at the end.

    Args:
        member: its id, host and accelerators. The rest is read from the service.
        listen: address for the service: HOST:PORT.
        folder: folder for its files, which no other agent uses.
    """

    def __init__(self, member: Member, listen: str, folder: Path, link: FleetLink, options: Sequence[str]) -> None:
        self._member = member
        self._link = link
        members = folder / "members"
        members.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = members / "members.json"
        self._known = 0
        self._write_table(())
        admin = f"unix:{folder}/admin.sock"
        self._options = ("--admin-listen", admin, "--fleet-members", str(self._file), *options)
        self._listen = KeptAddress(listen, folder / "address")
        self._address = ""
        self._drained = False
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._reader = MemberReader(grpc.insecure_channel(admin, CHANNEL_OPTIONS), _ADMIN_TIMEOUT_S)
        self._service = ServiceProcess(
            lambda: ["--listen", self._listen.next(), *self._options], folder / "service.log", self._note_address
        )
        self._thread = threading.Thread(target=self._run, name="nnhal-fleet-report", daemon=True)

    def start(self) -> None:
        """Start the service, and report on it."""
        self._service.start()
        self._thread.start()

    @property
    def service_pid(self) -> int:
        """Id of the process of the service; 0 if none runs."""
        return self._service.pid

    @property
    def generation(self) -> int:
        """Number of starts of the service."""
        return self._service.generation

    def restart(self) -> None:
        """Have the service end in order, and start another one with the version that is installed now."""
        self._service.end()

    def stop(self) -> None:
        """End the service in order, and leave the fleet."""
        self._stopping.set()
        self._service.stop()
        self._changed.set()
        self._thread.join()
        self._reader.close()

    def _note_address(self, address: str) -> None:
        if address:
            self._listen.note(address)
        self._address = address
        self._drained = False  # a new service takes sessions
        self._changed.set()

    def _run(self) -> None:
        """Report at regular intervals, and at once when the service has started or ended."""
        while not self._stopping.is_set():
            interval = report_interval_s(1)
            try:
                if self._address:
                    interval = self._report(self._address)
                else:
                    self._link.leave(self._member.id)
            except (FleetError, grpc.RpcError, OSError) as error:
                _log.warning("no report: %s", error)
            self._changed.wait(interval)
            self._changed.clear()
        try:
            self._link.leave(self._member.id)
        except FleetError as error:
            _log.warning("the fleet learns of the end later: %s", error)

    def _report(self, address: str) -> float:
        """Report once, and return the seconds until the next report."""
        found = self._reader.read(lambda snapshot: self._member)
        member = replace(
            found,
            address=address,
            generation=self._service.generation,
            draining=self._drained or found.draining,
            known=self._known,
        )
        orders = self._link.report(member)
        if orders.drained != self._drained:
            # the members first: the service then knows where to send its clients
            changed = replace(member, draining=orders.drained)
            members = [changed if each.id == member.id else each for each in orders.members]
            self._write_table(members, orders.refusal)
            if orders.drained:
                self._reader.stub.Drain(admin_pb2.DrainRequest(), timeout=_ADMIN_TIMEOUT_S)
            else:
                self._reader.stub.Resume(admin_pb2.ResumeRequest(), timeout=_ADMIN_TIMEOUT_S)
            self._drained = orders.drained
            self._changed.set()
        else:
            self._write_table(orders.members, orders.refusal)
        return orders.interval_s

    def _write_table(self, members: Sequence[Member], refusal: str = "") -> None:
        write_members(self._file, MemberTable(self._member.id, tuple(members), refusal))
        self._known = len(members)
