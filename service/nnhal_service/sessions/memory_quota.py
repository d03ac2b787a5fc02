"""Quota on the bytes of memory objects and buffers that each identity uses."""

import threading
import weakref
from collections import Counter

from nnhal.types import Bytes
from nnhal_service.sessions.limits import Limits


class Reservation:
    """Bytes that count against a quota until this object is freed."""


class MemoryQuota:
    """Bytes that each identity uses, counted until nothing references them, prepared models included. Thread safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    def charge(self, identity: str, buffer: Bytes) -> None:
        """Count the bytes of a buffer until the buffer is freed.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit memory_bytes.
        """
        self._charge(identity, int(buffer.nbytes), buffer)

    def reserve(self, identity: str, size: int) -> Reservation:
        """Count bytes that are not allocated yet, until the returned object is freed.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit memory_bytes.
        """
        reservation = Reservation()
        self._charge(identity, size, reservation)
        return reservation

    def used(self, identity: str) -> int:
        """Return the bytes that an identity uses."""
        return self._used[identity]

    def _charge(self, identity: str, size: int, owner: object) -> None:
        """Count bytes until `owner` is freed."""
        with self._lock:
            used = self._used[identity] + size
            self._limits.require("memory_bytes", used, "Memory objects and buffers would have")
            self._used[identity] = used
        weakref.finalize(owner, self._release, identity, size)

    def _release(self, identity: str, size: int) -> None:
        with self._lock:
            self._used[identity] -= size
            if not self._used[identity]:
                del self._used[identity]
