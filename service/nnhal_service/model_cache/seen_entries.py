"""Seals of the entries that a process has seen, by which it notices that an older entry was put back.

A seal shows that a service with the key has written an entry, not that the entry is the newest one. A process that may
write to the cache directory could bring back an entry that has been replaced, for example because it was wrong.
"""

import os
import threading
from collections import deque
from dataclasses import dataclass, field

from nnhal.lru import LruDict
from nnhal_cache.seal import SEAL_BYTES

_MAX_ENTRIES = 4096
"""Entries that are remembered; the one that was not used for longest is forgotten."""
_MAX_REPLACED = 16
"""Replaced seals that are remembered for each entry."""


@dataclass(slots=True)
class _Seals:
    """Seals of one entry: the current one, and those that it has replaced."""

    current: bytes = b""
    replaced: deque[bytes] = field(default_factory=lambda: deque(maxlen=_MAX_REPLACED))

    def replace(self, seal: bytes) -> None:
        """Note the seal of the current entry."""
        if self.current not in (b"", seal):
            self.replaced.append(self.current)
        self.current = seal


class SeenEntries:
    """Seals of the entries that this process has saved or loaded. Thread safe."""

    def __init__(self) -> None:
        self._entries: LruDict[tuple[str, bytes], _Seals] = LruDict(_MAX_ENTRIES)
        self._lock = threading.Lock()

    def saved(self, identity: str, token: bytes, model_fd: int) -> None:
        """Note an entry that this process has written. It counts as new even if it is equal to an older one."""
        seal = _read_seal(model_fd)
        with self._lock:
            seals = self._find(identity, token)
            seals.replace(seal)
            if seal in seals.replaced:
                seals.replaced.remove(seal)

    def is_rolled_back(self, identity: str, token: bytes, model_fd: int) -> bool:
        """Return whether an entry that is to be loaded is older than one that this process has seen."""
        seal = _read_seal(model_fd)
        with self._lock:
            seals = self._find(identity, token)
            if seal in seals.replaced:
                return True
            seals.replace(seal)
            return False

    def _find(self, identity: str, token: bytes) -> _Seals:
        seals = self._entries.get((identity, token)) or _Seals()
        self._entries.put((identity, token), seals)
        return seals


def _read_seal(model_fd: int) -> bytes:
    size = os.fstat(model_fd).st_size
    return os.pread(model_fd, SEAL_BYTES, max(0, size - SEAL_BYTES))
