"""All sessions of a service, and the expiry of those whose connection is gone.

A session lives as long as one of its keep-alive streams, plus a grace time. Then everything that it owns is released.
"""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import grpc

from nnhal_driver.execution.buffer import Buffer
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.identity.accounts import Accounts
from nnhal_service.identity.authentication import Authentication
from nnhal_service.identity.held_places import session_digest
from nnhal_service.identity.identity import Credential, Identity, client_digest, client_name
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.session import STOPPING, Session, session_lost, stopping

_CHECK_NS = 10**9
"""Time between checks whether the credentials of sessions are still valid."""


class SessionRegistry:
    """The sessions of a service. Thread safe. Close it when done.

    Args:
        grace_s: seconds that a session outlives its last keep-alive stream.
        on_empty: called when the last session has ended.
        claim: called with the digest of the client of each session before it opens. It may refuse.

    Attributes:
        authentication: the same.
    """

    def __init__(
        self,
        grace_s: float,
        limits: Limits | None = None,
        on_empty: Callable[[], object] = lambda: None,
        token_suffix: bytes = b"",
        authentication: Authentication | None = None,
        claim: Callable[[bytes], None] = lambda client: None,
    ) -> None:
        self.grace_s = grace_s
        self._limits = limits or Limits()
        self._on_empty = on_empty
        self._claim = claim
        self._token_suffix = token_suffix
        self.authentication = authentication or Authentication(Accounts())
        self._authenticates = self.authentication.is_enabled
        self._sessions: dict[bytes, Session] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = self._ended = False
        # timers of their own: closing the objects of a session may block
        self._timers = Timers("nnhal-sessions")
        if self._authenticates:
            self._timers.call_at(now_ns() + _CHECK_NS, self._end_revoked)

    def open(
        self, identity: Identity, credential: Credential | None = None, peer: str = "", replaces: bytes = b""
    ) -> Session:
        """Create a session with one keep-alive stream. The peer is the client's connection, as gRPC names it.

        `replaces`: digest of the session that the client has lost, whose place it takes if another worker holds it.

        Raises:
            HalError: DEVICE_UNAVAILABLE: the service is stopping. RESOURCE_EXHAUSTED_TRANSIENT: limit sessions, or the
                quota of the identity.
        """
        account = self.authentication.accounts.of(identity)
        client, digest = client_name(identity, peer), client_digest(identity, peer)
        with self._lock:
            if self._closed:
                raise stopping()
            own = sum(client_name(each.identity, each.peer) == client for each in self._sessions.values())
            self._limits.require_share("sessions", len(self._sessions), own, client)
            self._claim(digest)
            place = account.use.take(replaces) if replaces else None
            account.acquire("sessions", place)
            session = Session(f"s{next(self._numbers)}", identity, self._limits, self._token_suffix, account)
            session.credential = credential or session.credential
            session.attachments = 1
            session.peer, session.client_digest, session.place = peer, digest, place
            self._sessions[session.token] = session
        return session

    def get(self, token: bytes, context: grpc.ServicerContext | None, *, connects: bool = False) -> Session:
        """Return the session with a token, for a call of its client.

        The context is None if the caller has proved in another way that it is the client. `connects` tells whether the
        call keeps its connection open as long as it proves the identity.

        Raises:
            HalError: SessionLostError: it has ended, never existed, or belongs to another identity.
                DEVICE_UNAVAILABLE: the service is stopping. GENERAL_FAILURE of kind UNAUTHENTICATED: the credentials
                of the call are invalid.
        """
        if self._closed:
            raise stopping()
        session = self.find(token)
        if self._authenticates and context is not None:
            self._require_owner(session, context, connects=connects)
        return session

    def _require_owner(self, session: Session, context: grpc.ServicerContext, *, connects: bool) -> None:
        """Raise an error unless a call comes from the identity of a session."""
        renewed = self.authentication.renew(session.credential, context)
        if renewed is None:
            raise session_lost()  # as if the session did not exist
        if renewed is not session.credential and (connects or session.identity.kind != "user"):
            session.credential = renewed

    def find(self, token: bytes) -> Session:
        """Return the session with a token, for a call that has begun, also while the service stops.

        Raises:
            SessionLostError: it has ended, or never existed.
        """
        session = self._sessions.get(token)
        if session is None:
            raise session_lost()
        return session

    def attach(self, token: bytes, context: grpc.ServicerContext | None = None) -> Session:
        """Add a keep-alive stream to a session, and return the session.

        Raises:
            HalError: SessionLostError: it has ended. DEVICE_UNAVAILABLE: the service is stopping.
                RESOURCE_EXHAUSTED_TRANSIENT: limit session_streams.
        """
        session = self.get(token, context, connects=True)
        with self._lock:
            self.get(token, None)  # it may have ended meanwhile
            self._limits.require("session_streams", session.attachments + 1, "the session would have")
            session.attachments += 1
        return session

    def forget_connection(self, session: Session, peer: str) -> None:
        """Note that a connection that proves the identity of a session may have ended. Others could get its name."""
        if session.identity.kind == "user" and session.credential.proof == peer:
            session.credential = replace(session.credential, proof="")

    def _end_revoked(self) -> None:
        """End the sessions whose credential has expired or been revoked, and those of the future, too."""
        for session in self.all():
            if not self.authentication.is_valid(session.credential):
                self.end(session, "its token has expired or been revoked")
        if not self._ended:
            self._timers.call_at(now_ns() + _CHECK_NS, self._end_revoked)

    def detach(self, session: Session) -> None:
        """Remove a keep-alive stream that has ended. The last one starts the grace time."""
        with self._lock:
            session.attachments -= 1
            if session.attachments or session.closed or self._closed:
                return
            expires_at_ns = session.expires_at_ns = now_ns() + int(self.grace_s * 1e9)
        self._timers.call_at(expires_at_ns, partial(self._expire, session, expires_at_ns))

    def _expire(self, session: Session, expires_at_ns: int) -> None:
        with self._lock:
            if session.attachments or session.expires_at_ns != expires_at_ns:
                return  # the session was attached again meanwhile
        self.end(session, "its connection is gone")

    def end(self, session: Session, reason: str) -> None:
        """End a session at once."""
        with self._lock:
            if self._sessions.pop(session.token, None) is not None:
                session.account.release("sessions")
            is_empty = not self._sessions
        session.close(reason)
        if is_empty:
            self._on_empty()

    def all(self) -> list[Session]:
        """Return the open sessions."""
        return list(self._sessions.values())

    def count(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def drain(self) -> None:
        """Accept no more sessions, and tell the clients of the open ones to go elsewhere."""
        self.hold_places()
        for session in self.all():
            session.drain(STOPPING)

    def hold_places(self) -> None:
        """Accept no more sessions, and hold the places of the open ones in quotas for the grace time."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            until_ns = now_ns() + int(self.grace_s * 1e9)
            for session in self._sessions.values():
                used = _quota_use(session)
                session.account.use.hold(session_digest(session.token), used, session.place, until_ns)

    def resume(self) -> None:
        """Accept sessions again, after `drain`."""
        with self._lock:
            self._closed = False
            for session in self._sessions.values():
                session.account.use.release_held()

    def close(self) -> None:
        """End every session, and accept no more."""
        self.drain()
        self.end_all()
        self._ended = True
        self._timers.close()

    def end_all(self) -> None:
        """End every session because the service stops."""
        for session in self.all():
            self.end(session, STOPPING)


def _quota_use(session: Session) -> tuple[int, int, int]:
    """Return what a session uses of the quotas that are held: see `held_places.HELD`."""
    memories = {id(entry.value.buffer): entry.value.buffer.nbytes for entry in session.objects_of(MemoryObject)}
    buffers = sum(entry.value.state.size or 0 for entry in session.objects_of(Buffer))
    return 1, sum(memories.values()) + buffers, session.number_of("prepared_models")
