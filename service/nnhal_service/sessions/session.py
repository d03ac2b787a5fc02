"""Session: the objects of one client, by unguessable handles.

Handles are looked up in the table of their session only. A handle of another session therefore looks like one that
never existed.
"""

import itertools
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from nnhal.errors import HalError, SessionLostError
from nnhal.types import ErrorKind, ErrorStatus
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.quota_use import HeldPlace
from nnhal_service.identity.accounts import Account
from nnhal_service.identity.identity import Credential, Identity
from nnhal_service.identity.policy import IdentityRules
from nnhal_service.log import event
from nnhal_service.metrics.calls import SeriesKey
from nnhal_service.metrics.series import CallSeries
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.shared_table import SharedTable

HANDLE_BYTES = 16
QUOTAS = frozenset(["prepared_models"])
"""Limits of sessions that are quotas of identities as well."""
STOPPING = "the service is stopping"
"""Reason for the end of sessions and executions when the service stops."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionObject(Generic[T]):
    """An object of a session.

    Attributes:
        label: its name in logs.
        limit: name of the limit on objects of its kind; or "".
        created_at: time at which the session got it, in seconds since 1970.
        name: that which its client gave it; or "".
    """

    label: str
    value: T
    limit: str
    created_at: float
    name: str


class _Listeners:
    """Functions to call with the reason when something ends. Thread safe."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[str], None]] = []
        self._reason: str | None = None
        self._lock = threading.Lock()

    def add(self, listener: Callable[[str], None]) -> None:
        """Call a function with the reason at the end, or now if that has come. It must not block."""
        with self._lock:
            if self._reason is None:
                self._listeners.append(listener)
                return
        listener(self._reason)

    def remove(self, listener: Callable[[str], None]) -> None:
        """Remove a listener, if it was not called yet."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def notify(self, reason: str) -> None:
        """Call the listeners. A second call does nothing."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(reason)


class OngoingCall(Protocol):
    """Call that occupies a thread.

    Attributes:
        cancellation: cancels the work of the call.
    """

    cancellation: Cancellation

    def abort(self, error: HalError) -> None:
        """End the call with an error, although its thread goes on."""


class Session:
    """The objects of one client. Thread safe.

    Attributes:
        token: sent by the client with every call; secret.
        identity: identity of the client, under which quotas and cache entries are counted.
        credential: what proved the identity last.
        account: rights and quotas of the identity.
        place: what is held for it since its client has left another worker.
        owner: owner of the work of the session for the driver, which shares its time fairly between owners.
        secret: sent by the client on the data socket.
        client: name that the client gave itself.
        peer: address of the client, as gRPC reports it.
        client_digest: see `nnhal_service.identity.identity`.
        placement: member of the fleet that has sent the client here, and why, as the client says; or "".
        opened_at: time of the start, in seconds since 1970.
        attachments: keep-alive streams of the session. The registry counts them.
        expires_at_ns: end of the grace time that began last. The registry sets it.
        on_close, off_close: add and remove a function to call with the reason when the session ends.
        on_drain, off_drain: the same when the client should go elsewhere: the service stops, or the session ends. What
            is in progress goes on.
        series: counts of its calls, for `CallMeter`.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        limits: Limits | None = None,
        token_suffix: bytes = b"",
        account: Account | None = None,
    ) -> None:
        self.token = secrets.token_bytes(HANDLE_BYTES - len(token_suffix)) + token_suffix
        self.name = name
        self.identity = identity
        self.credential = Credential(identity)
        self.account = account or Account(identity, IdentityRules(), may_connect=True)
        self.place: HeldPlace | None = None
        self.owner: Hashable = self.account.owner(name)
        self.secret = secrets.token_bytes(HANDLE_BYTES)
        self.client = self.peer = self.placement = ""
        self.client_digest = b""
        self.opened_at = time.time()
        self.attachments = 0
        self.expires_at_ns = 0
        self.closed = False
        self.series: dict[SeriesKey, CallSeries] = {}
        self._limits = limits or Limits()
        self.shared = SharedTable(self._limits)
        self._objects: dict[bytes, SessionObject[object]] = {}
        self._counts: Counter[str] = Counter()
        self._calls: set[OngoingCall] = set()
        self._numbers = itertools.count(1)
        self._closing, self._draining = _Listeners(), _Listeners()
        self.on_close, self.off_close = self._closing.add, self._closing.remove
        self.on_drain, self.off_drain = self._draining.add, self._draining.remove
        self._close_reason = ""
        self._lock = threading.Lock()

    def add(self, value: object, limit: str = "", name: str = "") -> bytes:
        """Take ownership of an object and return its handle. It counts against `objects` and a limit on its kind.

        `name`: see `SessionObject`.

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
            label = f"{self.name}.{next(self._numbers)}"
            self._objects[handle] = SessionObject(label, value, limit, time.time(), name)
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

    def begin_call(self, call: OngoingCall) -> None:
        """Count a call against `session_calls`, and cancel it if the session ends before `end_call`.

        Raises:
            HalError: SESSION_LOST or STOPPING: the session has ended. RESOURCE_EXHAUSTED_TRANSIENT: the limit.
        """
        with self._lock:
            if self.closed:
                raise self.end_error()
            self._count("session_calls")
            self._calls.add(call)

    def end_call(self, call: OngoingCall) -> None:
        """Undo one `begin_call`."""
        with self._lock:
            self._counts["session_calls"] -= 1
            self._calls.discard(call)

    def abort_calls(self) -> None:
        """End the calls that go on although the session has ended, with the reason. Their threads may go on."""
        for call in self._running_calls():
            call.abort(self.end_error())

    def _running_calls(self) -> list[OngoingCall]:
        with self._lock:
            return list(self._calls)

    def _count(self, limit: str) -> None:
        self._limits.require(limit, self._counts[limit] + 1, "the session would have")
        if limit in QUOTAS:
            self.account.acquire(limit, self.place)
        self._counts[limit] += 1

    def number_of(self, limit: str) -> int:
        """Return how many objects and slots count against a limit."""
        return self._counts[limit]

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

    def objects_of(self, kind: type[T]) -> list[SessionObject[T]]:
        """Return the objects of a class."""
        with self._lock:
            entries = list(self._objects.values())
        return [cast(SessionObject[T], entry) for entry in entries if isinstance(entry.value, kind)]

    @property
    def object_count(self) -> int:
        """Number of objects."""
        return len(self._objects)

    def release(self, handles: Iterable[bytes]) -> None:
        """Release objects, and call their `close` method if they have one. Unknown handles are ignored."""
        released = []
        with self._lock:
            for handle in handles:
                if entry := self._objects.pop(handle, None):
                    self._counts[entry.limit] -= 1
                    if entry.limit in QUOTAS:
                        self.account.release(entry.limit)
                    released.append(entry)
        _close(released)

    def end_error(self) -> HalError:
        """Return the error of the calls that the end of the session cuts off."""
        return stopping() if self._close_reason == STOPPING else session_lost()

    def drain(self, reason: str) -> None:
        """Tell the client to go elsewhere. The session goes on. A second call does nothing."""
        with self._lock:
            self._close_reason = self._close_reason or reason
        self._draining.notify(reason)

    def log_opened(self) -> None:
        """Log that its client, whose name is known, has connected."""
        identity = str(self.identity)
        event("session-opened", session=self.name, client=self.client, peer=self.peer, identity=identity)

    def close(self, reason: str) -> None:
        """Release all objects and call the listeners. A second call does nothing."""
        self.drain(reason)
        with self._lock:
            if self.closed:
                return
            self.closed, self._close_reason = True, reason
            event("session-ended", session=self.name, why=reason, objects=len(self._objects))
            released, self._objects = list(self._objects.values()), {}
            for limit in QUOTAS:
                for _ in range(self._counts.pop(limit, 0)):
                    self.account.release(limit)
        for call in self._running_calls():
            call.cancellation.cancel(self.end_error)
        _close(released)
        self.shared.close()
        self._closing.notify(reason)


def _close(entries: Iterable[SessionObject[object]]) -> None:
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
