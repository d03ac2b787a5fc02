"""All sessions of a service, and the expiry of those whose connection is gone.

A session lives as long as one of its keep-alive streams, plus a grace time. Then everything that it owns is released.
"""

import itertools
import threading
from collections.abc import Callable
from functools import partial

from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.identity.identity import Identity
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.session import STOPPING, Session, session_lost, stopping


class SessionRegistry:
    """The sessions of a service. Thread safe. Close it when done.

    Args:
        grace_s: seconds that a session outlives its last keep-alive stream.
        on_empty: called when the last session has ended.
        token_suffix: end of the tokens.
    """

    def __init__(
        self,
        grace_s: float,
        limits: Limits | None = None,
        on_empty: Callable[[], object] = lambda: None,
        token_suffix: bytes = b"",
    ) -> None:
        self.grace_s = grace_s
        self._limits = limits or Limits()
        self._on_empty = on_empty
        self._token_suffix = token_suffix
        self._sessions: dict[bytes, Session] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        # timers of their own: closing the objects of a session may block
        self._timers = Timers("nnhal-sessions")

    def open(self, identity: Identity) -> Session:
        """Create a session with one keep-alive stream.

        Raises:
            HalError: DEVICE_UNAVAILABLE: the service is stopping. RESOURCE_EXHAUSTED_TRANSIENT: limit sessions.
        """
        with self._lock:
            if self._closed:
                raise stopping()
            self._limits.require("sessions", len(self._sessions) + 1, "the service would have")
            session = Session(f"s{next(self._numbers)}", identity, self._limits, self._token_suffix)
            session.attachments = 1
            self._sessions[session.token] = session
        return session

    def get(self, token: bytes) -> Session:
        """Return the session with a token.

        Raises:
            HalError: SessionLostError: it has ended, or never existed. DEVICE_UNAVAILABLE: the service is stopping.
        """
        if self._closed:
            raise stopping()
        return self.find(token)

    def find(self, token: bytes) -> Session:
        """Return the session with a token, for a call that has begun, also while the service stops.

        Raises:
            SessionLostError: it has ended, or never existed.
        """
        session = self._sessions.get(token)
        if session is None:
            raise session_lost()
        return session

    def attach(self, token: bytes) -> Session:
        """Add a keep-alive stream to a session, and return the session.

        Raises:
            HalError: SessionLostError: it has ended. DEVICE_UNAVAILABLE: the service is stopping.
                RESOURCE_EXHAUSTED_TRANSIENT: limit session_streams.
        """
        with self._lock:
            session = self.get(token)
            self._limits.require("session_streams", session.attachments + 1, "the session would have")
            session.attachments += 1
        return session

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
            self._sessions.pop(session.token, None)
            is_empty = not self._sessions
        session.close(reason)
        if is_empty:
            self._on_empty()

    def count(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def drain(self) -> None:
        """Accept no more sessions, and tell the clients of the open ones to go elsewhere."""
        with self._lock:
            self._closed = True
            sessions = list(self._sessions.values())
        for session in sessions:
            session.drain(STOPPING)

    def close(self) -> None:
        """End every session, and accept no more."""
        self.drain()
        for session in list(self._sessions.values()):
            self.end(session, STOPPING)
        self._timers.close()
