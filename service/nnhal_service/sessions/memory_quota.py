"""Memory that clients use, checked before it is allocated.

The kernel counts the memory of a process when it is mapped, touched or not. At the limit of the process, allocations of
gRPC, protobuf and the interpreter fail as well, which ends the process. So what a client causes counts here first,
against a quota below that limit (`nnhal_service.memory_limits`).
"""

import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, TypeVar

from nnhal.errors import HalError, limit_exceeded
from nnhal.types import Bytes
from nnhal.v1 import types_pb2
from nnhal_driver.scheduling.quota_use import Quota, QuotaUse
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.sessions.limits import LIMITS, SHARE, Limits
from nnhal_service.sessions.session import Session

REQUEST_BYTES = 2**14
"""Smallest request that counts. A call with a smaller one takes about as much memory as one without."""
REQUEST_COPIES = 4
"""Memory of a request in multiples of its size: the message of gRPC, its bytes in Python, and what is decoded."""
OBJECT_BYTES = 2**11
"""Memory of an object of a session that has no memory besides, with its handle. A waiting call takes as much."""
ARGUMENT_BYTES = 700
"""Memory of an input or output of a request: its location, its region and its name."""
DEFINED_COPIES = 60
"""Memory of a request without values that is kept, in multiples of its encoding: an argument has about 13 bytes."""
_FEW_ARGUMENTS = 2**8
"""Arguments of a request that do not count."""

T = TypeVar("T")


class Reservation:
    """Bytes that count until `release`, or until this object and the owners of `keep_for` are freed.

    As a context manager, it is released at the end.
    """

    __slots__ = ("_identity", "_quota", "_session", "_size")

    def __init__(self, quota: "MemoryQuota", session: bytes, identity: Identity | None, size: int) -> None:
        self._quota = quota
        self._session = session
        self._identity = identity
        self._size = size

    def release(self) -> None:
        """Count the bytes no longer. A second call does nothing."""
        size, self._size = self._size, 0
        if size:
            self._quota.give_back(self._session, self._identity, size)

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def keep_for(self, owner: object) -> None:
        """Count the bytes until an object is freed, too."""
        weakref.finalize(owner, self.release).atexit = False

    def __del__(self) -> None:
        self.release()


class _Refusal(NamedTuple):
    """Limit that more bytes would exceed.

    Attributes:
        name: of the limit.
        used: bytes in use.
        left: bytes that may still be used.
        identity: of the client, if the limit counts by identity.
    """

    name: str
    used: int
    left: int
    identity: Identity | None = None


class MemoryQuota:
    """Bytes that each session, each identity and all clients together use. Thread safe.

    All bytes count against the limit `service_memory_bytes`. Memory objects and buffers also count against
    `memory_bytes`, by identity.

    Sessions of an identity share the memory as one session. Anonymous clients are not one client: each of their
    sessions counts.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_session: Counter[bytes] = Counter()
        self._by_identity: Counter[Identity] = Counter()
        self._uses: dict[Identity, QuotaUse] = {}  # of identities with a quota that have bytes
        self._total = 0
        self._lock = threading.Lock()
        # a finalizer may run on a thread that has the lock; it leaves its bytes here
        self._returned: deque[tuple[bytes, Identity | None, int]] = deque()

    def charge(self, session: Session, buffer: Bytes) -> None:
        """Count an object of a client that is allocated already, until it is freed.

        Raises:
            HalError: as `reserve_object`.
        """
        self.reserve_object(session, int(buffer.nbytes)).keep_for(buffer)

    def reserve_object(self, session: Session, size: int) -> Reservation:
        """Count the bytes of a Memory object or a buffer before they are allocated.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit memory_bytes or service_memory_bytes.
        """
        client = _client(session)
        self._take(client, session, size, "the object")
        return Reservation(self, client, session.identity, size)

    def reserve(self, session: Session, size: int, subject: str) -> Reservation:
        """Count other bytes before they are allocated. The error names what needs them, the subject.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit service_memory_bytes.
        """
        client = _client(session)
        self._take(client, None, size, subject)
        return Reservation(self, client, None, size)

    def reserve_request(self, session: Session, size: int, copies: int = REQUEST_COPIES) -> Reservation | None:
        """Count copies of a request while its call runs or waits, or while an object keeps it; None if it is small.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit service_memory_bytes.
        """
        return None if size < REQUEST_BYTES else self.reserve(session, copies * size, "the request")

    def reserve_arguments(self, session: Session, request: types_pb2.Request) -> Reservation | None:
        """Count the arguments of a request while it is in use; None if they are few.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit service_memory_bytes.
        """
        count = len(request.inputs) + len(request.outputs)
        return None if count <= _FEW_ARGUMENTS else self.reserve(session, ARGUMENT_BYTES * count, "the request")

    def count_object(self, session: Session, make: Callable[[], T], size: int = 0) -> T:
        """Return the object that `make` creates for a session. It counts from now on until it is freed.

        `size`: bytes besides `OBJECT_BYTES`.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit service_memory_bytes; or what `make` raises.
        """
        reservation = self.reserve(session, OBJECT_BYTES + size, "the object")
        value = make()
        reservation.keep_for(value)
        return value

    def give_back(self, session: bytes, identity: Identity | None, size: int) -> None:
        """Count bytes no longer. Called by reservations."""
        self._returned.append((session, identity, size))
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def used(self, identity: Identity) -> int:
        """Return the bytes of the Memory objects and buffers of an identity."""
        with self._lock:
            self._settle()
            return self._by_identity[identity]

    def used_by(self, session: Session) -> int:
        """Return all bytes that a session uses, or all sessions of its identity together."""
        with self._lock:
            self._settle()
            return self._by_session[_client(session)]

    @property
    def objects(self) -> int:
        """Bytes of all Memory objects and buffers."""
        with self._lock:
            self._settle()
            return sum(self._by_identity.values())

    @property
    def total(self) -> int:
        """All bytes that clients use."""
        with self._lock:
            self._settle()
            return self._total

    def _take(self, client: bytes, owner: Session | None, size: int, subject: str) -> None:
        with self._lock:
            self._settle()
            refused = self._refusal(client, owner, size)
            if not refused:
                self._by_session[client] += size
                self._total += size
                if owner:
                    self._by_identity[owner.identity] += size
        if refused:  # outside of the lock: a message takes memory, and so may run finalizers
            raise _error(subject, size, refused)

    def _refusal(self, client: bytes, owner: Session | None, size: int) -> _Refusal | None:
        """Return the limit that more bytes would exceed, or None. The quota of the identity is claimed then."""
        if owner:
            limit, used = self._limits["memory_bytes"], self._by_identity[owner.identity]
            if used + size > limit:
                return _Refusal("memory_bytes", used, limit - used, owner.identity)
        left, own = self._limits["service_memory_bytes"] - self._total, self._by_session[client]
        available = (SHARE * left - own) // (SHARE + 1)
        if size > available:
            return _Refusal("service_memory_bytes", own, max(0, available))
        return None if owner is None else self._claim(owner, used, size)

    def _claim(self, owner: Session, used: int, size: int) -> _Refusal | None:
        """Claim bytes of the quota of an identity, if it has one. Return it if workers together exceed it."""
        account = owner.account
        if (quota := account.rules.memory_bytes) is None:
            return None
        total = account.use.claim(Quota.MEMORY_BYTES, used, size, quota, owner.place)
        if total is not None:
            return _Refusal("identity_memory_bytes", total, quota - total, account.identity)
        self._uses[account.identity] = account.use
        return None

    def _settle(self) -> None:
        """Subtract the bytes that were given back. The caller has the lock."""
        while self._returned:
            session, identity, size = self._returned.popleft()
            self._total -= size
            _subtract(self._by_session, session, size)
            if identity:
                _subtract(self._by_identity, identity, size)
                self._publish(identity)

    def _publish(self, identity: Identity) -> None:
        """Tell other workers what an identity uses, if it has a quota."""
        if (use := self._uses.get(identity)) is not None:
            use.publish(Quota.MEMORY_BYTES, self._by_identity[identity])
            if not self._by_identity[identity]:
                del self._uses[identity]


def _subtract(counter: Counter[T], key: T, size: int) -> None:
    counter[key] -= size
    if not counter[key]:
        del counter[key]


def _client(session: Session) -> bytes:
    """Return the name under which the bytes of a session count: that of the session, or of its identity."""
    return session.token if session.identity == ANONYMOUS else f"identity {session.identity}".encode()


def _error(subject: str, size: int, refusal: _Refusal) -> HalError:
    needs = f"{subject} needs {size} bytes"
    if refusal.name == "identity_memory_bytes":
        use = f"identity {refusal.identity} uses {refusal.used} of its quota of {refusal.used + refusal.left} bytes"
        return limit_exceeded(refusal.name, f"{needs}; {use}")
    owner = "clients of this identity use" if refusal.name == "memory_bytes" else "this session uses"
    reason = f"{needs}; {owner} {refusal.used} and may use {refusal.left} more"
    return limit_exceeded(refusal.name, reason, LIMITS[refusal.name].status)
