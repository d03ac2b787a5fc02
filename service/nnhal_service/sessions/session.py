"""Session: the objects of one client, by unguessable handles.

Handles are looked up in the table of their session only. A handle of another session therefore looks like one that
never existed.
"""

import itertools
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from nnhal.errors import HalError, SessionLostError
from nnhal.types import ErrorKind, ErrorStatus
from nnhal_service.identity.identity import Identity
from nnhal_service.log import event
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.shared_table import SharedTable

HANDLE_BYTES = 16
STOPPING = "the service is stopping"
"""Reason for the end of sessions and executions when the service stops."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry:
    label: str
    value: object
    limit: str


class Session:
    """The objects of one client. Thread safe.

    Attributes:
        token: sent by the client with every call; secret.
        name: name of the session in logs.
        identity: identity of the client, under which quotas and cache entries are counted.
        owner: name of the session for the driver, which shares its time fairly between owners.
        secret: sent by the client on the data socket.
        shared: memories and files that the client shares over the data socket.
        attachments: keep-alive streams of the session. The registry counts them.
        expires_at_ns: end of the grace time that began last. The registry sets it.
        closed: whether the session has ended.
    """

    def __init__(self, name: str, identity: Identity, limits: Limits | None = None, token_suffix: bytes = b"") -> None:
        self.token = secrets.token_bytes(HANDLE_BYTES - len(token_suffix)) + token_suffix
        self.name = name
        self.identity = identity
        self.owner = name
        self.secret = secrets.token_bytes(HANDLE_BYTES)
        self.attachments = 0
        self.expires_at_ns = 0
        self.closed = False
        self._limits = limits or Limits()
        self.shared = SharedTable(self._limits)
        self._objects: dict[bytes, _Entry] = {}
        self._counts: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._listeners: list[Callable[[str], None]] = []
        self._drain_listeners: list[Callable[[str], None]] = []
        self._close_reason = ""
        self._lock = threading.Lock()

    def add(self, value: object, limit: str = "") -> bytes:
        """Take ownership of an object and return its handle.

        Args:
            value: the object.
            limit: name of the limit on objects of this kind, besides `objects`.

        Raises:
            HalError: SESSION_LOST: the session has ended. RESOURCE_EXHAUSTED_*: a limit of the session.
        """
        handle = secrets.token_bytes(HANDLE_BYTES)
        with self._lock:
            if self.closed:
                raise session_lost()
            self._limits.require("objects", len(self._objects) + 1, "the session would have")
            if limit:
                self._count(limit)
            self._objects[handle] = _Entry(f"{self.name}.{next(self._numbers)}", value, limit)
        return handle

    def acquire_slot(self, limit: str) -> None:
        """Count something without a handle against a limit, until `release_slot`.

        Raises:
            HalError: RESOURCE_EXHAUSTED_*: the limit of that name.
        """
        with self._lock:
            self._count(limit)

    def release_slot(self, limit: str) -> None:
        """Undo one `acquire_slot`."""
        with self._lock:
            self._counts[limit] -= 1

    def _count(self, limit: str) -> None:
        self._limits.require(limit, self._counts[limit] + 1, "the session would have")
        self._counts[limit] += 1

    def label(self, handle: bytes) -> str:
        """Return the name of an object for logs, because handles are secret; "" for an unknown handle."""
        entry = self._objects.get(handle)
        return entry.label if entry else ""

    def get(self, handle: bytes, kind: type[T]) -> T:
        """Return the object with a handle.

        Raises:
            HalError: SESSION_LOST: the session has ended. INVALID_ARGUMENT of kind UNKNOWN_HANDLE. The text does not
                tell an unknown handle from a wrong kind of object.
        """
        entry = self._objects.get(handle)
        if entry is None and self.closed:
            raise session_lost()
        if entry is None or not isinstance(entry.value, kind):
            raise HalError(
                ErrorStatus.INVALID_ARGUMENT,
                "no such object in this session; it was closed, or it belongs to another session",
                kind=ErrorKind.UNKNOWN_HANDLE,
            )
        return entry.value

    def release(self, handles: Iterable[bytes]) -> None:
        """Release objects, and call their `close` method if they have one. Unknown handles are ignored."""
        released = []
        with self._lock:
            for handle in handles:
                if entry := self._objects.pop(handle, None):
                    self._counts[entry.limit] -= 1
                    released.append(entry)
        _close(released)

    def on_close(self, listener: Callable[[str], None]) -> None:
        """Call a function with the reason when the session ends, or now if it has ended. It must not block."""
        with self._lock:
            if not self.closed:
                self._listeners.append(listener)
                return
        listener(self._close_reason)

    def off_close(self, listener: Callable[[str], None]) -> None:
        """Remove a listener."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def on_drain(self, listener: Callable[[str], None]) -> None:
        """Call a function with the reason when the client should go elsewhere: the service stops, or the session ends.

        What is in progress goes on. The function is called once, now if that has happened. It must not block.
        """
        with self._lock:
            if not self._close_reason:
                self._drain_listeners.append(listener)
                return
        listener(self._close_reason)

    def off_drain(self, listener: Callable[[str], None]) -> None:
        """Remove a listener of `on_drain`."""
        with self._lock:
            if listener in self._drain_listeners:
                self._drain_listeners.remove(listener)

    def drain(self, reason: str) -> None:
        """Tell the client to go elsewhere. The session goes on. A second call does nothing."""
        with self._lock:
            self._close_reason = self._close_reason or reason
            listeners, self._drain_listeners = self._drain_listeners, []
        for listener in listeners:
            listener(reason)

    def close(self, reason: str) -> None:
        """Release all objects and call the listeners. A second call does nothing."""
        self.drain(reason)
        with self._lock:
            if self.closed:
                return
            self.closed, self._close_reason = True, reason
            event("session-ended", session=self.name, why=reason, objects=len(self._objects))
            released, self._objects = list(self._objects.values()), {}
            listeners, self._listeners = self._listeners, []
        _close(released)
        self.shared.close()
        for listener in listeners:
            listener(reason)


def _close(entries: Iterable[_Entry]) -> None:
    """Close the objects that can be closed. An object has one handle, so each is closed once."""
    for entry in entries:
        if (close := getattr(entry.value, "close", None)) is not None:
            close()


def stopping() -> HalError:
    """Return the error of a call that comes when the service stops, or that takes longer than its grace time."""
    return HalError(ErrorStatus.DEVICE_UNAVAILABLE, STOPPING, kind=ErrorKind.STOPPING)


def session_lost() -> HalError:
    """Return the error of a session that has ended or never existed."""
    return SessionLostError(
        ErrorStatus.DEVICE_UNAVAILABLE,
        "the session has ended; open a new one and prepare again",
        kind=ErrorKind.SESSION_LOST,
    )
