"""Places of clients that move to another worker: what their sessions use is held for them, in shared memory.

A worker that drains *holds* what each session of an identity with quotas uses. The client opens its next session in
place of the old one, and the worker there notes what the new session *takes* of it. What is held and not taken counts
against the quotas, also after the end of the worker that drains, until it expires.

Each worker has a table, which only it writes: positive records for what it holds, negative ones for what it takes.
"""

import hashlib
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.quota_use import HeldPlace, Quota

CAPACITY = 4096
"""Records of a table. Sessions for which there is no space lose their places."""
_HEADER = struct.Struct("<QQ")
"""Number of records, and the instant at which the last one expires."""
_RECORD = struct.Struct("<16s16sq3q")
"""Digests of the identity and of the old session, the instant at which it expires, and the first quotas of `Quota`."""
_VALUES = slice(_RECORD.size - 3 * 8, _RECORD.size)
TABLE_BYTES = _HEADER.size + CAPACITY * _RECORD.size
HELD = (Quota.SESSIONS, Quota.MEMORY_BYTES, Quota.PREPARED_MODELS)
"""Quotas that are held. They do not count in workers that drain."""


class PlaceTables(Protocol):
    """The tables of all workers. They outlive the workers."""

    def place_tables(self) -> Sequence[memoryview]:
        """Return the memory of all tables, by row."""


def session_digest(token: bytes) -> bytes:
    """Return the digest of the token of a session, with which its client names it for its next one."""
    return hashlib.sha256(token).digest()[:16]


class HeldPlaces:
    """Table of one worker, and its view of the others. Thread safe."""

    def __init__(self, tables: PlaceTables, row: int) -> None:
        self._tables = [_PlaceTable(memory) for memory in tables.place_tables()]
        self._own = self._tables[row]
        self._lock = threading.Lock()

    def hold(
        self, identity: bytes, session: bytes, used: Sequence[int], place: HeldPlace | None, until_ns: int
    ) -> None:
        """Hold what a session uses, and the rest of its place, which it has not taken."""
        rest = [self._left(identity, quota)[place.predecessor] if place else 0 for quota in HELD]
        with self._lock:
            self._own.add(identity, session, until_ns, [sum(both) for both in zip(used, rest, strict=True)])
        if place:
            for quota in HELD:
                place.taken[quota] -= rest[quota]

    def take(self, identity: bytes, predecessor: bytes) -> HeldPlace | None:
        """Return the place of the successor of a session; None if nothing is held for it."""
        for until_ns, session, _ in self._records(identity):
            if session == predecessor:
                with self._lock:
                    taken = self._own.add(identity, session, until_ns, (0,) * len(HELD))
                return None if taken is None else HeldPlace(predecessor, taken)
        return None

    def release(self, identity: bytes) -> None:
        """Hold nothing of an identity any more, because this worker does not drain any more."""
        for _, _, values in self._own.records(identity):
            if values[Quota.SESSIONS] > 0:
                values[:] = memoryview(bytes(values.nbytes)).cast("q")

    def count(self, identity: bytes, quota: int) -> int:
        """Return how much of a quota is held for clients of an identity, and not taken."""
        return sum(self._left(identity, quota).values())

    def _left(self, identity: bytes, quota: int) -> Counter[bytes]:
        """Return how much is left of what was held, by session."""
        left = Counter[bytes]()
        for _, session, values in self._records(identity):
            left[session] += values[quota]
        return +left

    def _records(self, identity: bytes) -> Iterator[tuple[int, bytes, memoryview]]:
        now = now_ns()
        for table in self._tables:
            if table.header[1] > now:
                yield from (record for record in table.records(identity) if record[0] > now)


class _PlaceTable:
    def __init__(self, memory: memoryview) -> None:
        self.header = memory[: _HEADER.size].cast("Q")
        self._memory = memory[_HEADER.size :]

    def add(self, identity: bytes, session: bytes, until_ns: int, values: Sequence[int]) -> memoryview | None:
        """Add a record, and return its values; None if there is no space."""
        if self.header[1] <= now_ns():
            self.header[0] = 0
        index = self.header[0]
        if index >= CAPACITY:
            return None
        _RECORD.pack_into(self._memory, index * _RECORD.size, identity, session, until_ns, *values)
        self.header[1] = max(self.header[1], until_ns)
        self.header[0] = index + 1
        return self._values(index)

    def records(self, identity: bytes) -> Iterator[tuple[int, bytes, memoryview]]:
        """Yield the end, the session and the values of each record of an identity."""
        for index in range(self.header[0]):
            owner, session, until_ns, *_ = _RECORD.unpack_from(self._memory, index * _RECORD.size)
            if owner == identity:
                yield until_ns, session, self._values(index)

    def _values(self, index: int) -> memoryview:
        return self._memory[index * _RECORD.size : (index + 1) * _RECORD.size][_VALUES].cast("q")
