"""Directory of the workers, and the decision of a worker where a client goes: perhaps to another service of a fleet."""

import hashlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from nnhal.errors import HalError, limit_exceeded
from nnhal.v1 import session_pb2
from nnhal_service.log import event
from nnhal_service.peers.fleet.fleet_directory import FleetDirectory
from nnhal_service.supervisor.addresses import WorkerAddresses
from nnhal_service.supervisor.scoreboard import NO_OWNER, Scoreboard, WorkerState, WorkerStatus

_ARRIVAL_S = 0.5
"""Seconds for which a client that was sent to a worker counts as one of its sessions. It should have arrived then."""


class WorkerDirectory:
    """Row of one worker in the scoreboard, and its view of the others. Thread safe.

    Args:
        addresses: the addresses of each worker, by slot.
        exclusive: whether each worker serves one identity only.
    """

    def __init__(
        self,
        scoreboard: Scoreboard,
        row: int,
        status: WorkerStatus,
        addresses: tuple[WorkerAddresses, ...],
        *,
        exclusive: bool = False,
    ) -> None:
        self._scoreboard = scoreboard
        self._row = row
        self._status = status
        self._addresses = addresses
        self._exclusive = exclusive
        self._lock = threading.Lock()
        self._sent: deque[tuple[float, int]] = deque()

    def report(self, state: WorkerState, heartbeat_ns: int, sessions: int, executions: int) -> None:
        """Write the row of this worker. Call it from one thread."""
        serving_ns = self._status.serving_ns or (heartbeat_ns if state is WorkerState.SERVING else 0)
        redirects = [0] * len(self._status.redirects)
        for at, slot in tuple(self._sent):
            redirects[slot] += time.monotonic() - at < _ARRIVAL_S
        with self._lock:
            self._status = replace(
                self._status,
                state=state,
                heartbeat_ns=heartbeat_ns,
                serving_ns=serving_ns,
                sessions=sessions,
                executions=executions,
                redirects=tuple(redirects),
            )
            self._scoreboard.write(self._row, self._status)

    def claim(self, identity: str) -> None:
        """Let this worker serve one identity from now on, if each worker serves one only.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit workers: it serves another one.
        """
        if not self._exclusive:
            return
        owner = _owner(identity)
        with self._lock:
            if self._status.owner not in (NO_OWNER, owner):
                raise _no_worker("this worker serves another identity")
            if self._status.owner != owner:
                self._status = replace(self._status, owner=owner)
                self._scoreboard.write(self._row, self._status)

    @property
    def is_claimed(self) -> bool:
        """True if this worker has served an identity, and may not serve others."""
        return self._status.owner != NO_OWNER

    @property
    def is_draining(self) -> bool:
        """True if this worker takes no more sessions."""
        return self._status.state is WorkerState.DRAINING

    def choose(self, kind: str, sessions: int, session: bytes, identity: str = "") -> str:
        """Return the address of the worker for a client, or "" to serve it here: see `Redirector.choose`.

        The token of the session is b"" for a new one.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit workers: each worker serves one identity, and all of them
                others.
        """
        if len(self._addresses) == 1:
            return ""
        own = self._status.slot
        if session:
            slot = session[-1]
        else:
            slot = self._worker_of(identity) if self._exclusive else self._least_loaded(sessions)
        if slot >= len(self._addresses):  # not a token of this service
            return ""
        if kind == "unix":
            # a path belongs to one worker alone
            return self._addresses[slot].unix if slot != own else ""
        # also for this worker: a resumption through the shared port could reach another one
        return self._addresses[slot].tcp

    def _worker_of(self, identity: str) -> int:
        """Return the worker that serves an identity, or else one that serves none."""
        owner = _owner(identity)
        owners = {status.slot: status.owner for status in self._scoreboard.serving()}
        owners[self._status.slot] = self._status.owner
        for wanted in (owner, NO_OWNER):
            if slots := [slot for slot, other in owners.items() if other == wanted]:
                return self._status.slot if self._status.slot in slots else min(slots)
        raise _no_worker(f"all {len(owners)} workers serve other identities")

    def _least_loaded(self, sessions: int) -> int:
        """Return the worker for a new session, and count it there until it has arrived."""
        now = time.monotonic()
        while self._sent and now - self._sent[0][0] >= _ARRIVAL_S:
            self._sent.popleft()
        own = self._status.slot
        workers = {status.slot: status for status in self._scoreboard.serving()}
        loads = {slot: status.sessions for slot, status in workers.items()}
        if self._status.state is not WorkerState.DRAINING or not loads:
            loads[own] = sessions
        for slot in loads:
            sent_by_others = (status.redirects[slot] for status in workers.values() if status.slot != own)
            loads[slot] += sum(sent_by_others) + sum(to == slot for _, to in tuple(self._sent))
        chosen = min(loads, key=lambda slot: (loads[slot], slot != own, slot))
        self._sent.append((now, chosen))
        return chosen


class WorkerRedirector:
    """See `nnhal_service.serving.hosting.Redirector`."""

    def __init__(self, workers: WorkerDirectory, fleet: FleetDirectory | None) -> None:
        self._workers = workers
        self._fleet = fleet

    def choose(
        self, request: session_pb2.OpenRequest, kind: str, sessions: int, identity: str
    ) -> session_pb2.SessionRedirect | None:
        """Return where to send a client, or None to serve it here."""
        if self._fleet is not None and not request.session:
            found = self._fleet.choose(request, sessions, is_local=kind == "unix")
            if found is not None and found.member is not None:
                event("session-placed", member=found.member.id, why=found.reason)
                reason = f"{self.member}: {found.reason}"
                return session_pb2.SessionRedirect(address=found.member.address, other_service=True, reason=reason)
        address = self._workers.choose(kind, sessions, request.session, identity)
        return session_pb2.SessionRedirect(address=address) if address else None

    def members(self, known: Sequence[str] = ()) -> Sequence[str]:
        """Return the addresses of other services that can take over when this one is gone, first those of `known`."""
        return self._fleet.others(known) if self._fleet is not None else ()

    @property
    def member(self) -> str:
        """Id of this service in its fleet, or ""."""
        return self._fleet.here if self._fleet is not None else ""


def _owner(identity: str) -> bytes:
    """Return the digest of an identity, as workers write it."""
    return hashlib.sha256(identity.encode()).digest()[: len(NO_OWNER)]


def _no_worker(reason: str) -> HalError:
    return limit_exceeded("workers", reason)
