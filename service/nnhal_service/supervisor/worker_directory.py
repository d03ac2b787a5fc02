"""Directory of the workers, and the decision of a worker where a client goes: perhaps to another service of a fleet.

A client goes to a worker that serves any client, or to one of its own: identities if the operator wants that, and
offenders. A worker of one's own is started when a client opens a session, which waits for it.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nnhal.errors import HalError, limit_exceeded
from nnhal.v1 import session_pb2
from nnhal_service.identity.identity import is_host
from nnhal_service.log import event
from nnhal_service.peers.fleet.fleet_directory import FleetDirectory
from nnhal_service.supervisor.addresses import WorkerAddresses
from nnhal_service.supervisor.scoreboard import MAX_WORKERS, NO_OWNER, Scoreboard, WorkerState, WorkerStatus

_ARRIVAL_S = 0.5
"""Seconds for which a client that was sent to a worker counts as one of its sessions. It should have arrived then."""
_START_S = 5.0
"""Seconds for which a client waits for a worker of its own."""
_POLL_S = 0.005
_SINGLE = b"\2"
"""Last byte of an owner that is any one session: its first one."""
_WAITING = 64
"""Number of clients that may wait so at once in one worker."""


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """Decision which clients have workers of their own.

    Attributes:
        per_identity: True: all clients; None: identities, if they can be sent there; False: offenders only.
        private_workers: number of workers that serve one client each, at most.
        start: asks the supervisor for a worker of a client.
    """

    per_identity: bool | None = False
    private_workers: int = 0
    start: Callable[[bytes], object] = lambda owner: None


class WorkerDirectory:
    """Row of one worker in the scoreboard, and its view of the others. Thread safe.

    Args:
        addresses: its addresses.
    """

    def __init__(
        self,
        scoreboard: Scoreboard,
        row: int,
        status: WorkerStatus,
        addresses: WorkerAddresses,
        policy: WorkerPolicy = WorkerPolicy(),
    ) -> None:
        self._scoreboard = scoreboard
        self._row = row
        self._status = status
        self._addresses = addresses
        self._policy = policy
        self._offenders = scoreboard.offenders
        self._has_session = False
        self._waiting = threading.Semaphore(_WAITING)
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

    def claim(self, client: bytes) -> None:
        """Check that this worker may serve a client, given its digest.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit workers: it serves another one, or the client must go to a
                worker of its own.
        """
        owner = self._status.owner
        if owner == NO_OWNER:
            if self._policy.per_identity or self._offenders.wait_s(client) is not None:
                raise _no_worker("this client needs a worker of its own; connect with a client that follows redirects")
        elif owner != client and (owner[-1:] != _SINGLE or self._has_session):
            raise _no_worker("this worker serves another client")
        self._has_session = True

    @property
    def is_draining(self) -> bool:
        """True if this worker takes no more sessions."""
        return self._status.state is WorkerState.DRAINING

    def choose(self, kind: str, sessions: int, session: bytes, client: bytes = b"") -> str:
        """Return the address of the worker for a client, or "" to serve it here: see `Redirector.choose`.

        The token of the session is b"" for a new one. Blocks while a worker starts.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit workers: the client needs a worker of its own, and cannot have
                one now.
        """
        if session:
            return self._address(session[-1], kind)
        if self._status.owner != NO_OWNER:
            return ""  # `claim` decides
        wait_s = self._offenders.wait_s(client)
        if wait_s:
            raise _no_worker(f"its work had to be ended several times; it can connect again in {wait_s:.0f} s")
        is_identity = self._policy.per_identity is None and not is_host(client)
        if self._policy.per_identity or is_identity or wait_s is not None:
            # the clients of a host on probation do not share a worker: one of them may be the offender
            owner = secrets.token_bytes(len(client) - 1) + _SINGLE if is_host(client) and wait_s == 0 else client
            if (slot := self._private_worker(owner)) is not None:
                return self._address(slot, kind)
            if not is_identity or wait_s is not None:
                raise _no_worker(f"all {self._policy.private_workers} workers of single clients are in use")
        return self._address(self._least_loaded(sessions), kind)

    def _address(self, slot: int, kind: str) -> str:
        """Return the address of a worker for a client, or "" to serve it here."""
        own = self._status.slot
        if slot == own:
            # also for this worker: a resumption through the shared port could reach another one
            return "" if kind == "unix" else self._addresses.for_redirect(own, self._addresses.port, is_local=False)
        if slot >= MAX_WORKERS and slot not in {status.slot for status in self._scoreboard.serving()}:
            return ""  # not a token of this service, or of a worker that is gone
        return self._addresses.for_redirect(slot, self._scoreboard.port(slot), is_local=kind == "unix")

    def _private_worker(self, owner: bytes) -> int | None:
        """Return the worker of a client, once it serves; None if the client cannot have one."""
        if not self._waiting.acquire(blocking=False):
            return None
        try:
            end, asked = time.monotonic() + _START_S, False
            while time.monotonic() < end:
                workers = [each for each in self._scoreboard.workers() if each.owner != NO_OWNER]
                own = [each for each in workers if each.owner == owner and each.state is not WorkerState.DRAINING]
                if own and own[0].state is WorkerState.SERVING:
                    return own[0].slot
                if not asked and not own:
                    if len(workers) >= self._policy.private_workers:
                        return None
                    asked = True
                    self._policy.start(owner)
                time.sleep(_POLL_S)
            return None
        finally:
            self._waiting.release()

    def _least_loaded(self, sessions: int) -> int:
        """Return the worker for a new session, and count it there until it has arrived."""
        now = time.monotonic()
        while self._sent and now - self._sent[0][0] >= _ARRIVAL_S:
            self._sent.popleft()
        own = self._status.slot
        workers = {status.slot: status for status in self._scoreboard.serving() if status.owner == NO_OWNER}
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
        self, request: session_pb2.OpenRequest, kind: str, sessions: int, client: bytes
    ) -> session_pb2.SessionRedirect | None:
        """Return where to send a client, or None to serve it here."""
        if self._fleet is not None and not request.session:
            found = self._fleet.choose(request, sessions, is_local=kind == "unix")
            if found is not None and found.member is not None:
                event("session-placed", member=found.member.id, why=found.reason)
                reason = f"{self.member}: {found.reason}"
                return session_pb2.SessionRedirect(address=found.member.address, other_service=True, reason=reason)
        address = self._workers.choose(kind, sessions, request.session, client)
        return session_pb2.SessionRedirect(address=address) if address else None

    def members(self, known: Sequence[str] = ()) -> Sequence[str]:
        """Return the addresses of other services that can take over when this one is gone, first those of `known`."""
        return self._fleet.others(known) if self._fleet is not None else ()

    @property
    def member(self) -> str:
        """Id of this service in its fleet, or ""."""
        return self._fleet.here if self._fleet is not None else ""


def _no_worker(reason: str) -> HalError:
    return limit_exceeded("workers", reason)
