"""Sessions and the objects they own, by unguessable handles.

A session lives while its keep-alive stream does, and for a grace time after it; then everything that it owns is let go.
Handles are looked up in the session's own table alone, so those of other sessions cannot be told from those that never
were.
"""

import heapq
import itertools
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from nnhal.errors import HalError, SessionLostError
from nnhal.types import ErrorKind, ErrorStatus
from service.limits import Limits
from service.log import event
from service.shared_memory import SharedTable

HANDLE_BYTES = 16

ANONYMOUS = "anonymous"
"""The identity of clients that are not told apart."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry:
    label: str
    thing: object
    limit: str


class Session:
    """One client's objects.

    Attributes:
        token: what the client presents with every call; secret.
        name: what logs call the session.
        identity: whose session it is.
        secret: what the client presents on the data socket.
        shared: what it sent over the data socket.
    """

    def __init__(self, name: str, identity: str, limits: Limits | None = None) -> None:
        self.token = secrets.token_bytes(HANDLE_BYTES)
        self.name = name
        self.identity = identity
        self._limits = limits or Limits()
        self.attachments = 0
        self.expires_at = 0.0
        self.closed = False
        self._objects: dict[bytes, _Entry] = {}
        self._counts: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._listeners: list[Callable[[str], None]] = []
        self._why = ""
        self._lock = threading.Lock()
        self.secret = secrets.token_bytes(HANDLE_BYTES)
        self.shared = SharedTable(self._limits)

    def add(self, thing: object, limit: str = "") -> bytes:
        """Takes an object over; gives its handle.

        Args:
            limit: name of the limit on objects of this kind, if there is one besides `objects`.

        Raises:
            HalError: SESSION_LOST: the session has ended meanwhile; a limit of the session.
        """
        handle = secrets.token_bytes(HANDLE_BYTES)
        with self._lock:
            if self.closed:
                raise session_lost()
            self._limits.hold("objects", len(self._objects) + 1, "the session would have")
            if limit:
                self._limits.hold(limit, self._counts[limit] + 1, "the session would have")
                self._counts[limit] += 1
            self._objects[handle] = _Entry(f"{self.name}.{next(self._numbers)}", thing, limit)
        return handle

    def enter(self, limit: str) -> None:
        """Counts something that is no object, until it leaves.

        Raises:
            HalError: RESOURCE_EXHAUSTED_*: the limit of that name.
        """
        with self._lock:
            self._limits.hold(limit, self._counts[limit] + 1, "the session would have")
            self._counts[limit] += 1

    def leave(self, limit: str) -> None:
        """Counts it no more."""
        with self._lock:
            self._counts[limit] -= 1

    def label(self, handle: bytes) -> str:
        """What logs call an object: handles are secret."""
        entry = self._objects.get(handle)
        return entry.label if entry else ""

    def get(self, handle: bytes, kind: type[T]) -> T:
        """The object behind a handle.

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE; the same whatever is wrong with the handle.
        """
        entry = self._objects.get(handle)
        if entry is None or not isinstance(entry.thing, kind):
            raise HalError(
                ErrorStatus.INVALID_ARGUMENT, "no such object in this session", kind=ErrorKind.UNKNOWN_HANDLE
            )
        return entry.thing

    def release(self, handles: Iterable[bytes]) -> None:
        """Lets objects go; unknown handles are passed over. One with a method `close` is closed."""
        gone = []
        with self._lock:
            for handle in handles:
                if entry := self._objects.pop(handle, None):
                    self._counts[entry.limit] -= 1
                    gone.append(entry)
        _close(gone)

    def forget(self, listener: Callable[[str], None]) -> None:
        """Takes a listener back."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def when_ended(self, listener: Callable[[str], None]) -> None:
        """Calls a function with the reason when the session ends, or now if it has. It must not block."""
        with self._lock:
            if not self.closed:
                self._listeners.append(listener)
                return
        listener(self._why)

    def close(self, why: str) -> None:
        """Lets everything go and tells the listeners; a second call does nothing."""
        with self._lock:
            if self.closed:
                return
            self.closed, self._why = True, why
            event("session-ended", session=self.name, why=why, objects=len(self._objects))
            gone, self._objects = list(self._objects.values()), {}
            listeners, self._listeners = self._listeners, []
        _close(gone)
        self.shared.close()
        for listener in listeners:
            listener(why)


def _close(gone: Iterable[_Entry]) -> None:
    """Closes those that have something to close, each exactly once: an object has one handle."""
    for entry in gone:
        if (close := getattr(entry.thing, "close", None)) is not None:
            close()


def session_lost() -> HalError:
    """The error of a session that has ended or never was."""
    return SessionLostError(
        ErrorStatus.DEVICE_UNAVAILABLE,
        "the session has ended; open a new one and prepare again",
        kind=ErrorKind.SESSION_LOST,
    )


class Sessions:
    """All sessions of a service, and the one thread that ends those whose grace time is over.

    Args:
        when_none: is called when the last session has ended.
    """

    def __init__(
        self, grace_s: float, limits: Limits | None = None, when_none: Callable[[], object] = lambda: None
    ) -> None:
        self.grace_s = grace_s
        self._limits = limits or Limits()
        self._when_none = when_none
        self._sessions: dict[bytes, Session] = {}
        self._numbers = itertools.count(1)
        self._entries = itertools.count()
        self._expiring: list[tuple[float, int, Session]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._expire, name="nnhal-sessions", daemon=True)
        self._thread.start()

    def open(self, identity: str) -> Session:
        """Makes a session that is attached to one stream."""
        with self._changed:
            if self._closed:
                raise HalError(ErrorStatus.DEVICE_UNAVAILABLE, "the service is stopping")
            self._limits.hold("sessions", len(self._sessions) + 1, "the service would have")
            session = Session(f"s{next(self._numbers)}", identity, self._limits)
            session.attachments = 1
            self._sessions[session.token] = session
        return session

    def get(self, token: bytes) -> Session:
        """The session behind a token.

        Raises:
            SessionLostError: there is none.
        """
        session = self._sessions.get(token)
        if session is None:
            raise session_lost()
        return session

    def attach(self, token: bytes) -> Session:
        """Takes a session up again with another stream.

        Raises:
            HalError: there is no such session (SessionLostError), or it has too many streams.
        """
        with self._changed:
            session = self.get(token)
            self._limits.hold("session_streams", session.attachments + 1, "the session would have")
            session.attachments += 1
        return session

    def detach(self, session: Session) -> None:
        """A stream has ended; the last one starts the grace time."""
        with self._changed:
            session.attachments -= 1
            if session.attachments == 0 and not session.closed:
                session.expires_at = time.monotonic() + self.grace_s
                heapq.heappush(self._expiring, (session.expires_at, next(self._entries), session))
                self._changed.notify()

    def end(self, session: Session, why: str) -> None:
        """Ends a session at once."""
        with self._changed:
            self._sessions.pop(session.token, None)
            none = not self._sessions
        session.close(why)
        if none:
            self._when_none()

    def count(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    def close(self) -> None:
        """Ends every session and the thread."""
        with self._changed:
            self._closed = True
            left = list(self._sessions.values())
            self._changed.notify()
        for session in left:
            self.end(session, "the service stops")
        self._thread.join()

    def _expire(self) -> None:
        while (session := self._next_expired()) is not None:
            self.end(session, "its connection is gone")
            del session  # a waiting thread must keep nothing alive

    def _next_expired(self) -> Session | None:
        """Waits for a session whose grace time is over; None when the service stops."""
        with self._changed:
            while not self._closed:
                if not self._expiring:
                    self._changed.wait()
                elif (wait := self._expiring[0][0] - time.monotonic()) > 0:
                    self._changed.wait(wait)
                else:
                    at, _, session = heapq.heappop(self._expiring)
                    # an older entry of a session that was taken up again meanwhile says nothing
                    if session.attachments == 0 and not session.closed and session.expires_at == at:
                        return session
        return None
