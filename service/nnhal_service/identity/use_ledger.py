"""Use of quotas in the memory that workers share, so that a quota counts for the whole service.

Each worker has a table there, which only it writes: one entry for each identity with quotas that it knows. A worker
adds up its own use and that of the other tables. There is no lock, so that no worker can keep others waiting.
"""

import hashlib
import struct
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from nnhal_driver.scheduling.quota_use import HeldPlace, Quota, QuotaUse
from nnhal_service.identity.held_places import HELD, HeldPlaces, PlaceTables

CAPACITY = 4096
"""Entries of a table. Identities for which there is no space count in their worker alone."""
_ATTEMPTS = 100
"""Number of attempts to claim, while other workers claim at the same instant."""
_DIGEST_BYTES = 16
_HEADER = struct.Struct("<QQ")
"""Number of changes of the entries, and the number of entries that have ever been used."""
_VALUES_OFFSET = _HEADER.size + CAPACITY * _DIGEST_BYTES
TABLE_BYTES = _VALUES_OFFSET + CAPACITY * Quota.COUNT * 8
_NO_DIGEST = bytes(_DIGEST_BYTES)


class Tables(PlaceTables, Protocol):
    """The tables of all workers."""

    def use_table(self, row: int) -> memoryview:
        """Return the memory of a table."""

    def worker_states(self) -> bytes:
        """Return the state of the worker of each row, as one byte."""

    def rows(self, states: bytes, *, draining: bool) -> Sequence[int]:
        """Return the rows with workers, with or without those that drain."""


class UseTable:
    """Table of one worker."""

    def __init__(self, memory: memoryview) -> None:
        self.header = memory[: _HEADER.size].cast("Q")
        self.values = memory[_VALUES_OFFSET:TABLE_BYTES].cast("q")
        self._digests = memory[_HEADER.size : _VALUES_OFFSET]

    @property
    def size(self) -> int:
        """Number of entries that have been used."""
        return self.header[1]

    def find(self, digest: bytes) -> int:
        """Return where the values of an identity begin, or -1."""
        digests = bytes(self._digests[: self.size * _DIGEST_BYTES])
        start = digests.find(digest)
        while start >= 0 and start % _DIGEST_BYTES:
            start = digests.find(digest, start + 1)
        return start // _DIGEST_BYTES * Quota.COUNT if start >= 0 else -1

    def assign(self, index: int, digest: bytes) -> int:
        """Give an entry to an identity. Return where its values, which are 0, begin."""
        start, values = index * _DIGEST_BYTES, index * Quota.COUNT
        self._digests[start : start + _DIGEST_BYTES] = _NO_DIGEST
        for quota in range(Quota.COUNT):
            self.values[values + quota] = 0
        self._digests[start : start + _DIGEST_BYTES] = digest
        self.header[1] = max(self.size, index + 1)
        self.header[0] += 1
        return values

    def clear(self) -> None:
        """Empty the table. What was never used is not touched, and takes no memory."""
        size, self.header[1] = self.size, 0
        self._digests[: size * _DIGEST_BYTES] = bytes(size * _DIGEST_BYTES)
        self.header[0] += 1  # others must not take the entries of the next worker for those of the last one


class UseLedger:
    """Use of quotas by identities, as one worker writes and reads it. Thread safe.

    Attributes:
        places: what clients that move from a worker that drains have used there.
    """

    def __init__(self, tables: Tables, row: int) -> None:
        self._tables = tables
        self._row = row
        self.places = HeldPlaces(tables, row)
        self._own = UseTable(tables.use_table(row))
        self._others: dict[int, UseTable] = {}
        self._states = b""
        self._counted: Sequence[Sequence[UseTable]] = ((), ())
        self._uses: weakref.WeakValueDictionary[str, SharedUse] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._free: deque[int] = deque()  # also filled by finalizers, which may run on a thread that has the lock

    def use_of(self, identity: str) -> QuotaUse:
        """Return the use of an identity. It has an entry while the object exists."""
        with self._lock:
            if (known := self._uses.get(identity)) is not None:
                return known
            if not self._free and self._own.size >= CAPACITY:
                return QuotaUse()
            index = self._free.popleft() if self._free else self._own.size
            digest = hashlib.sha256(identity.encode()).digest()[:_DIGEST_BYTES]
            use = self._uses[identity] = SharedUse(self, self._own, self._own.assign(index, digest), digest)
            weakref.finalize(use, self._release, index).atexit = False
            return use

    def _release(self, index: int) -> None:
        self._own.assign(index, _NO_DIGEST)
        self._free.append(index)

    def other_tables(self, quota: int) -> Sequence[UseTable]:
        """Return the tables of the other workers whose use of a quota counts."""
        states = self._tables.worker_states()
        if states != self._states:
            rows = (self._tables.rows(states, draining=each) for each in (False, True))
            self._counted = [[self._table(row) for row in each if row != self._row] for each in rows]
            self._states = states
        return self._counted[quota not in HELD]

    def _table(self, row: int) -> UseTable:
        if row not in self._others:
            self._others[row] = UseTable(self._tables.use_table(row))
        return self._others[row]


class SharedUse(QuotaUse):
    """Use of the quotas of one identity in all workers.

    Args:
        start: where the values of the identity begin in it.
    """

    def __init__(self, ledger: UseLedger, own: UseTable, start: int, digest: bytes) -> None:
        self._ledger = ledger
        self._values = own.values
        self._start = start
        self._digest = digest
        self._places: dict[UseTable, tuple[int, int]] = {}

    def publish(self, quota: int, value: int) -> None:
        """See the base class."""
        self._values[self._start + quota] = value

    def hold(self, session: bytes, used: Sequence[int], place: HeldPlace | None, until_ns: int) -> None:
        """See the base class."""
        self._ledger.places.hold(self._digest, session, used, place, until_ns)

    def release_held(self) -> None:
        """See the base class."""
        self._ledger.places.release(self._digest)

    def take(self, predecessor: bytes) -> HeldPlace | None:
        """See the base class."""
        return self._ledger.places.take(self._digest, predecessor)

    def claim(self, quota: int, own: int, amount: int, allowed: int, place: HeldPlace | None = None) -> int | None:
        """See the base class.

        Each worker publishes its claim before it reads those of the others. So two that claim the last unit at the same
        instant cannot both get it. If both fail, they try again. What comes from a place counts twice for a moment,
        so that no other one gets it meanwhile.
        """
        for _ in range(_ATTEMPTS):
            self._values[self._start + quota] = own + amount
            if place is not None:
                place.taken[quota] -= amount
            if own + amount + self.elsewhere(quota) <= allowed:
                return None
            if place is not None:
                place.taken[quota] += amount
            self._values[self._start + quota] = own
            used = own + self.elsewhere(quota)
            if used + amount > allowed:
                break
        return used

    def elsewhere(self, quota: int) -> int:
        """See the base class."""
        total = self._ledger.places.count(self._digest, quota) if quota in HELD else 0
        for table in self._ledger.other_tables(quota):
            place = self._places.get(table)
            if place is None or place[0] != table.header[0]:
                place = self._places[table] = (table.header[0], table.find(self._digest))
            if place[1] >= 0:
                total += table.values[place[1] + quota]
        return total
