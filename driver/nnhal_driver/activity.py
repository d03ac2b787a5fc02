"""Table of the work in progress, in memory that another process can read after this one has crashed.

Each preparation and execution has a record while it runs: model, backend, thread, deadline, and when it was cancelled.
A supervisor reads the records to name the model that crashed a process, and to find work that ignores its deadline. A
record costs about a microsecond for each execution.
"""

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import now_ns

DIGEST_BYTES = 32
"""Size of the digest of a model; zeros if it is unknown."""
CAPACITY = 64
"""Number of records. When all are in use, further work has none."""

_RECORD = struct.Struct(f"<{DIGEST_BYTES}sqqqqQBB6x")
_STAGE_OFFSET = DIGEST_BYTES + 5 * 8
_BACKEND_OFFSET = _STAGE_OFFSET + 1
_CANCELLED_OFFSET = DIGEST_BYTES + 2 * 8
_INT64 = struct.Struct("<q")

TABLE_BYTES = _RECORD.size * CAPACITY
"""Size of a table."""
NO_RECORD = -1
"""Number of the record of work that has none."""


class Stage(IntEnum):
    """Kind of the work of a record."""

    IDLE = 0
    PREPARING = 1
    LOADING = 2
    EXECUTING = 3


@dataclass(frozen=True, slots=True)
class Activity:
    """Work in progress.

    Attributes:
        stage: kind of work.
        digest: digest of the model; empty if it is unknown.
        backend: id of the backend whose code runs; "" if it is unknown.
        started_ns: instant of CLOCK_BOOTTIME at which it started.
        deadline_ns: its deadline on the same clock; 0 if there is none.
        cancelled_ns: when its cancellation was noticed; 0 if it is not cancelled.
        expected_ns: how long the work may usually take; 0 if unknown.
        thread: `threading.get_ident()` of its thread.
    """

    stage: Stage
    digest: bytes
    backend: str
    started_ns: int
    deadline_ns: int
    cancelled_ns: int
    expected_ns: int
    thread: int


class _CurrentRecord(threading.local):
    """Record of the work of a thread: a function that notes the backend whose code begins to run."""

    note: Callable[[str], None] | None = None


_current = _CurrentRecord()


def note_backend(backend: str) -> None:
    """Record that the code of a backend begins to run on the calling thread."""
    if (note := _current.note) is not None:
        note(backend)


class ActivityTable:
    """Writer of a table. Thread safe: each record belongs to one thread at a time.

    Args:
        buffer: memory of the table, zeroed; `TABLE_BYTES` bytes.

    Attributes:
        backends: ids of the backends, in the order of their numbers in records, which begin at 1.
    """

    def __init__(self, buffer: memoryview) -> None:
        self.backends: list[str] = []
        self._buffer = buffer
        self._free = list(range(CAPACITY))
        self._cancellations: list[Cancellation | None] = [None] * CAPACITY
        self._numbers: dict[str, int] = {}

    def know(self, backends: Sequence[str]) -> None:
        """Add the backends of a device."""
        self.backends.extend(id_ for id_ in backends if id_ not in self.backends)
        self._numbers = {id_: number for number, id_ in enumerate(self.backends, 1)}

    def begin(
        self,
        stage: Stage,
        digest: bytes,
        deadline_ns: int = 0,
        cancellation: Cancellation | None = None,
        expected_ns: int = 0,
    ) -> int:
        """Write a record for work that begins on the calling thread, and return its number.

        Args:
            stage: kind of work.
            digest: digest of the model; empty if it is unknown.
            deadline_ns: its deadline, an instant of CLOCK_BOOTTIME; 0 or less if there is none.
            cancellation: its cancellation.
            expected_ns: how long the work may usually take; 0 if unknown.
        """
        try:
            number = self._free.pop()  # atomic
        except IndexError:
            return NO_RECORD
        self._cancellations[number] = cancellation
        _RECORD.pack_into(
            self._buffer,
            number * _RECORD.size,
            digest,
            now_ns(),
            deadline_ns,
            0,
            expected_ns,
            threading.get_ident(),
            stage,
            0,
        )
        _current.note = partial(self._note, number * _RECORD.size + _BACKEND_OFFSET)
        return number

    @contextmanager
    def record(
        self, stage: Stage, digest: bytes, deadline_ns: int = 0, cancellation: Cancellation | None = None
    ) -> Iterator[None]:
        """Keep a record while the body runs. The arguments are those of `begin`."""
        number = self.begin(stage, digest, deadline_ns, cancellation)
        try:
            yield
        finally:
            self.end(number)

    def end(self, number: int) -> None:
        """Clear the record of work that ends on the calling thread."""
        if number != NO_RECORD:
            _current.note = None
            self._buffer[number * _RECORD.size + _STAGE_OFFSET] = Stage.IDLE
            self._cancellations[number] = None
            self._free.append(number)

    @property
    def count(self) -> int:
        """Number of records in use."""
        return CAPACITY - len(self._free)

    def note_cancellations(self) -> None:
        """Write into the records which work has been cancelled. Call it regularly, from one thread."""
        for number, cancellation in enumerate(self._cancellations):
            if cancellation is not None and cancellation.cancelled:
                offset = number * _RECORD.size + _CANCELLED_OFFSET
                if not any(self._buffer[offset : offset + _INT64.size]):
                    _INT64.pack_into(self._buffer, offset, now_ns())

    def _note(self, offset: int, backend: str) -> None:
        self._buffer[offset] = self._numbers.get(backend, 0)


def read_activities(buffer: memoryview, backends: Sequence[str]) -> list[Activity]:
    """Return the work in progress in a table.

    Args:
        buffer: memory of the table. Its process may be writing to it, so a record may be inconsistent for a moment.
        backends: `ActivityTable.backends` of the writer.
    """
    activities = []
    for number in range(CAPACITY):
        digest, started, deadline, cancelled, expected, thread, stage, backend = _RECORD.unpack_from(
            buffer, number * _RECORD.size
        )
        if stage != Stage.IDLE:
            id_ = backends[backend - 1] if 0 < backend <= len(backends) else ""
            known = digest if any(digest) else b""
            activities.append(Activity(Stage(stage), known, id_, started, deadline, cancelled, expected, thread))
    return activities
