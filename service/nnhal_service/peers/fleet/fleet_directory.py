"""Directory of a fleet, for a worker that decides where a new session goes."""

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol

from nnhal.errors import HalError, limit_exceeded
from nnhal.types import ErrorStatus
from nnhal.v1 import session_pb2
from nnhal_service.peers.fleet.member import Member, MemberTable, model_key
from nnhal_service.peers.fleet.placement import Needs, SessionPlacement, place

MAX_MEMBERS = 8
"""Number of other members that a client learns of, chosen at random."""
_ARRIVAL_S = 1.0
"""Seconds after which a client that was sent to a member is in its report."""


class MemberSource(Protocol):
    """Source of the members, see `MembersFile`."""

    def table(self) -> MemberTable | None:
        """Return the members; None if they are unknown."""

    @property
    def is_stale(self) -> bool:
        """True if their loads are too old to count."""


class FleetDirectory:
    """View of a worker of the fleet that its service belongs to. Thread safe.

    Args:
        is_drained: returns whether this worker takes no sessions.
    """

    def __init__(
        self,
        file: MemberSource,
        is_drained: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        self._file = file
        self._is_drained = is_drained
        self._clock = clock
        self._random = random or Random(os.urandom(16))
        self._lock = threading.Lock()
        self._sent: deque[tuple[float, str]] = deque()
        self._addresses: tuple[MemberTable | None, dict[str, None]] = (None, {})

    def choose(self, request: session_pb2.OpenRequest, sessions: int, *, is_local: bool) -> SessionPlacement | None:
        """Return the placement of a new session on another member, and count the client there; None to serve it here.

        This worker has some sessions. A local client, which has connected through a Unix socket, stays if this member
        will do.

        Raises:
            HalError: DEVICE_UNAVAILABLE: no member has what the client needs. RESOURCE_EXHAUSTED_TRANSIENT, limit
                hosts: all hosts are busy, and the fleet must not have more.
        """
        table = self._file.table()
        if table is None or request.placed:
            return None
        if table.refusal and not (request.continues or self._file.is_stale):
            raise limit_exceeded("hosts", f"the fleet takes no new clients: {table.refusal}")
        members = [self._current(member, sessions) if member.id == table.here else member for member in table.members]
        needs = _needs(request)
        found = place(members, needs, self._random, here=table.here, sent=self._recently_sent())
        if found.member is None:
            if needs.accelerator or needs.memory_bytes:
                raise HalError(ErrorStatus.DEVICE_UNAVAILABLE, f"the fleet has no place for the client: {found.reason}")
            return None
        stays = table.here not in found.refusals and (is_local or self._file.is_stale)
        if found.member.id == table.here or stays:
            return None
        with self._lock:
            self._sent.append((self._clock(), found.member.id))
        return found

    @property
    def here(self) -> str:
        """Id of this member; "" if it is unknown."""
        table = self._file.table()
        return "" if table is None else table.here

    def others(self, known: Sequence[str] = ()) -> list[str]:
        """Return the addresses of other members that can take over when this one is gone, at most MAX_MEMBERS.

        Those that the client knows, and that can still take over, come first.
        """
        table = self._file.table()
        if table is None:
            return []
        addresses = self._addresses_in(table)
        kept = [address for address in known if address in addresses][:MAX_MEMBERS]
        missing = min(len(addresses), MAX_MEMBERS) - len(kept)
        return (
            kept + self._random.sample([each for each in addresses if each not in kept], missing) if missing else kept
        )

    def _addresses_in(self, table: MemberTable) -> dict[str, None]:
        """Return the addresses of all members that can take over. Many sessions ask for the same table."""
        known, addresses = self._addresses
        if known is not table:
            others = (member for member in table.members if member.id != table.here and not member.draining)
            addresses = dict.fromkeys(member.address for member in others)
            self._addresses = table, addresses
        return addresses

    def _current(self, member: Member, sessions: int) -> Member:
        """Return the record of this member, with what has changed since its last report."""
        draining = member.draining or self._is_drained()
        return replace(member, draining=draining, sessions=max(member.sessions, sessions))

    def _recently_sent(self) -> Counter[str]:
        oldest = self._clock() - _ARRIVAL_S
        with self._lock:
            while self._sent and self._sent[0][0] < oldest:
                self._sent.popleft()
            return Counter(id_ for _, id_ in self._sent)


def _needs(request: session_pb2.OpenRequest) -> Needs:
    needs = request.needs
    return Needs(
        frozenset(model_key(key.hex()) for key in needs.models),
        needs.accelerator,
        needs.memory_bytes,
        frozenset(needs.avoid),
    )
