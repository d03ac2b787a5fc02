"""Exchange of reports between the services of a fleet without Ray: each reads those of all others."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from nnhal.address import Address
from nnhal.admin.v1 import admin_pb2
from nnhal.client.security.options import NO_OPTIONS, SecurityOptions
from nnhal.client.security.security import secured
from nnhal_service.log import event
from nnhal_service.peers.fleet.member import Member, MemberTable
from nnhal_service.peers.fleet.member_report import CHANNEL_OPTIONS, MemberReader, WaitMeter, member_of
from nnhal_service.peers.fleet.members_file import write_members
from nnhal_service.peers.fleet.peer_addresses import PeerAddresses, PeerTarget
from nnhal_service.settings import Settings

_INTERVAL_S = 1.0
"""Seconds between two reads of a member."""
_READS_PER_S = 20
"""Reads that each service should get in a second. In large fleets, each is read less often."""
_MISSED_READS = 3
_TIMEOUT_S = 2.0
_OLD_S = 600.0
"""Age of a file with members that no service writes any more."""
_THREADS = 16
_ANY_HOST = ("0.0.0.0", "::", "")

ReadSnapshot = Callable[[], admin_pb2.ServiceSnapshot]


def member_id(snapshot: admin_pb2.ServiceSnapshot) -> str:
    """Return the id of a member, which stays the same when its service is restarted with the same addresses."""
    place = " ".join((snapshot.host, *snapshot.addresses))
    return f"{snapshot.host}-{hashlib.sha256(place.encode()).hexdigest()[:6]}"


def client_address(snapshot: admin_pb2.ServiceSnapshot, admin: str) -> str:
    """Return the address of a service for clients; "" if it has none for other machines.

    A service that listens on all interfaces is reached at the host of its administration, whose address is `admin`.
    """
    for text in snapshot.addresses:
        address = Address.parse(text)
        if address.kind == "tcp":
            if address.host not in _ANY_HOST:
                return text
            reached = Address.parse(admin)
            if reached.kind == "tcp":
                return reached.with_port(address.port)
    return ""


def identify_member(snapshot: admin_pb2.ServiceSnapshot, admin: str) -> Member:
    """Return a member with its id, host and address: see `client_address`."""
    return Member(member_id(snapshot), snapshot.host, client_address(snapshot, admin), generation=1)


@dataclass(slots=True)
class _Peer:
    """A member, as far as it is known.

    Attributes:
        member: its last report, or None.
        at: time of that.
        problem: why the last read failed, or "".
    """

    reader: MemberReader
    is_reading: bool = False
    member: Member | None = None
    at: float = 0.0
    problem: str = ""


class PeerExchange:
    """Thread that reads the reports of all members, and writes them into a file for the workers. Close it when done.

    Args:
        settings: settings of the service, with `fleet_peers`.
    """

    def __init__(self, settings: Settings, path: Path, read_own: ReadSnapshot) -> None:
        assert settings.fleet_peers is not None
        self._path = path
        _remove_old(path.parent)
        self._read_own = read_own
        self._addresses = PeerAddresses(PeerTarget.parse(settings.fleet_peers))
        self._options = _options(settings, self._addresses.host)
        self._waits = WaitMeter()
        self._lock = threading.Lock()
        self._peers: dict[str, _Peer] = {}
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, "nnhal-peer-read")
        self._thread = threading.Thread(target=self._run, name="nnhal-peers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            interval = max(_INTERVAL_S, len(self._peers) / _READS_PER_S)
            try:
                self._step(interval)
            except Exception as error:  # the supervisor may not answer for a while; the next step reads again
                event("fleet-unread", logging.WARNING, why=f"{type(error).__name__}: {error}")
            self._stopping.wait(interval)

    def _step(self, interval: float) -> None:
        """Begin to read all members, and write what is known of them."""
        self._follow(self._addresses.find())
        own = self._read_own()
        oldest = time.monotonic() - _MISSED_READS * interval
        with self._lock:
            heard = [each.member for each in self._peers.values() if each.member is not None and each.at > oldest]
        members = {each.id: each for each in heard}
        here = member_id(own)
        known = members.get(here) or identify_member(own, "unix:/")
        members[here] = replace(member_of(own, known, self._waits), known=len(members.keys() | {here}))
        table = tuple(members[id_] for id_ in sorted(members) if members[id_].address or id_ == here)
        write_members(self._path, MemberTable(here, table))

    def _follow(self, addresses: Sequence[str]) -> None:
        """Read members that no read is in progress of, and forget those that have no address any more."""
        for address in self._peers.keys() - set(addresses):
            with self._lock:
                self._peers.pop(address).reader.close()
        for address in addresses:
            if address not in self._peers:
                with self._lock:
                    self._peers[address] = _Peer(self._connect(address))
            peer = self._peers[address]
            if not peer.is_reading:
                peer.is_reading = True
                self._threads.submit(self._read, address, peer)

    def _connect(self, admin: str) -> MemberReader:
        address, security = secured(admin, self._options)
        return MemberReader(security.channel(address or admin, list(CHANNEL_OPTIONS)), _TIMEOUT_S)

    def _read(self, admin: str, peer: _Peer) -> None:
        try:
            member = peer.reader.read(lambda snapshot: identify_member(snapshot, admin))
            problem = ""
        except (grpc.RpcError, ValueError) as error:  # a closed channel raises ValueError
            member, problem = None, str(error.details() if isinstance(error, grpc.Call) else error)
        if problem and problem != peer.problem:
            event("fleet-member-unread", logging.WARNING, address=admin, why=problem)
        with self._lock:
            peer.problem = problem
            if member is not None:
                peer.member, peer.at = member, time.monotonic()
            peer.is_reading = False

    def close(self) -> None:
        """End the thread, and close all connections."""
        self._stopping.set()
        self._thread.join()
        for peer in self._peers.values():
            peer.reader.close()
        self._threads.shutdown()


def _remove_old(folder: Path) -> None:
    """Remove the files of services that have ended."""
    oldest = time.time() - _OLD_S
    for path in folder.glob("members-*.json"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _options(settings: Settings, name: str) -> SecurityOptions:
    """Return the options of connections to members whose certificates have a name; "": that of each address."""
    if settings.tls_cert is None:
        return NO_OPTIONS
    return SecurityOptions(
        credentials=None,
        tls=True,
        ca=settings.tls_client_ca,
        cert=settings.tls_cert,
        key=settings.tls_key,
        server_name=name,
        token=None,
    )
