"""Table of the work in progress, in memory that another process can read after this one has crashed.

Each preparation and execution has a record while it runs: model, client, backend, thread, deadline, and when it was
cancelled. A supervisor reads the records to name the model and the client that crashed a process, and to find work that
ignores its deadline. A
record costs half a microsecond for each execution.
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
CLIENT_BYTES = 16
"""Size of the digest of a client; zeros if it is unknown."""
CAPACITY = 64
"""Number of records. When all are in use, further work has none."""

_TIMES_OFFSET = DIGEST_BYTES + CLIENT_BYTES
_RECORD = struct.Struct(f"<{_TIMES_OFFSET}sqqqqQBB6x")
_STAGE_OFFSET = _TIMES_OFFSET + 5 * 8
_BACKEND_OFFSET = _STAGE_OFFSET + 1
_STARTED_OFFSET, _CANCELLED_OFFSET, _EXPECTED_OFFSET = _TIMES_OFFSET, _TIMES_OFFSET + 2 * 8, _TIMES_OFFSET + 3 * 8
_THREAD_OFFSET = _TIMES_OFFSET + 4 * 8
_INT64, _TIMES = struct.Struct("<q"), struct.Struct("<qqqq")

TABLE_BYTES = _RECORD.size * CAPACITY
"""Size of a table."""


class Stage(IntEnum):
    """Kind of the work of a record."""

    IDLE = 0
    PREPARING = 1
    LOADING = 2
    EXECUTING = 3


_IDLE = int(Stage.IDLE)
EXECUTING = int(Stage.EXECUTING)
"""The stage as an integer, for the hot path."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Work in progress.

    Attributes:
        digest: digest of the model; empty if it is unknown.
        client: digest of the client; empty if it is unknown.
        backend: id of the backend whose code runs; "" if it is unknown.
        started_ns: instant of CLOCK_BOOTTIME at which it was in progress: at most one period of `publish` after its
            start, or before that of an earlier one.
        deadline_ns: its deadline on the same clock; 0 if there is none.
        cancelled_ns: when its cancellation was noticed; 0 if it is not cancelled.
        expected_ns: how long the work may usually take; 0 if unknown.
        thread: `threading.get_ident()` of its thread.
    """

    stage: Stage
    digest: bytes
    client: bytes
    backend: str
    started_ns: int
    deadline_ns: int
    cancelled_ns: int
    expected_ns: int
    thread: int


def subject_of(digest: bytes, client: bytes) -> bytes:
    """Return the subject of a record: a model and a client. Either digest may be empty."""
    return digest.ljust(DIGEST_BYTES, b"\0") + client


class _CurrentRecord(threading.local):
    """Record of the work of a thread."""

    record: "ActivityRecord | None" = None


_current = _CurrentRecord()


def note_backend(backend: str) -> None:
    """Record that the code of a backend begins to run on the calling thread."""
    if (record := _current.record) is not None:
        record.note(backend)


def current_record() -> "ActivityRecord | None":
    """Return the record of the work of the calling thread."""
    return _current.record


@contextmanager
def adopt_record(record: "ActivityRecord | None") -> Iterator[None]:
    """Work for a record of another thread, which waits, while the body runs."""
    if record is not None:
        record.move(threading.get_ident())
    _current.record = record
    try:
        yield
    finally:
        _current.record = None


class ActivityRecord:
    """One record of a table, and what is not written to it at once.

    Attributes:
        stage_offset: where its stage is in the table.
        note: notes the backend whose code begins to run.
        write_thread: writes the thread that does the work.
        subject, thread: what the record contains, whether it is in use or not.
        is_published: whether the record contains all about the work that it has for other processes.
        has_times: whether it contains a deadline or a cancellation.
    """

    __slots__ = (
        *("subject", "thread", "stage_offset", "offset", "note", "write_thread"),
        *("cancellation", "expected_ns", "is_published", "has_times"),
    )

    def __init__(self, number: int, note: Callable[[int, str], None], write: Callable[[int, int], None]) -> None:
        self.offset = number * _RECORD.size
        self.stage_offset = self.offset + _STAGE_OFFSET
        self.note = partial(note, self.offset + _BACKEND_OFFSET)
        self.write_thread = partial(write, self.offset + _THREAD_OFFSET)
        self.subject = b""
        self.thread = self.expected_ns = 0
        self.cancellation: Cancellation | None = None
        self.is_published = self.has_times = False

    @property
    def digest(self) -> bytes:
        """Digest of the model; empty if it is unknown."""
        digest = self.subject[:DIGEST_BYTES]
        return digest if any(digest) else b""

    def move(self, thread: int) -> None:
        """Note that another thread goes on with the work."""
        self.thread = thread
        self.write_thread(thread)


class ActivityTable:
    """Writer of a table. Thread safe: each record belongs to one thread at a time.

    What names a suspect after a crash is written at once, and so is a deadline. What is needed later, to find work
    that does not end, is written by `publish`.

    Args:
        buffer: memory of the table, zeroed; `TABLE_BYTES` bytes.

    Attributes:
        backends: ids of the backends, in the order of their numbers in records, which begin at 1.
    """

    def __init__(self, buffer: memoryview) -> None:
        self.backends: list[str] = []
        self._buffer = buffer
        self._records = [ActivityRecord(number, self._note, self._write) for number in range(CAPACITY)]
        self._free = self._records.copy()
        self._numbers: dict[str, int] = {}

    def add_backends(self, backends: Sequence[str]) -> None:
        """Add the backends of a device."""
        self.backends.extend(id_ for id_ in backends if id_ not in self.backends)
        self._numbers = {id_: number for number, id_ in enumerate(self.backends, 1)}

    def begin(
        self,
        stage: int,
        subject: bytes,
        deadline_ns: int = 0,
        cancellation: Cancellation | None = None,
        expected_ns: int = 0,
    ) -> ActivityRecord | None:
        """Write a record for work that begins on the calling thread. Return it, or None if all are in use.

        `stage`: a `Stage`; `subject`: see `subject_of`; `deadline_ns`: 0 or less if there is none. The others are as in
        `Activity`.
        """
        try:
            record = self._free.pop()  # atomic
        except IndexError:
            return None
        thread = threading.get_ident()
        record.cancellation = cancellation
        record.expected_ns = expected_ns
        record.is_published = False
        # the same thread mostly gets the same record, for the same model
        if record.subject is not subject or record.thread != thread or deadline_ns > 0:
            record.subject, record.thread, record.has_times = subject, thread, deadline_ns > 0
            _RECORD.pack_into(self._buffer, record.offset, subject, now_ns(), deadline_ns, 0, expected_ns, thread, 0, 0)
        self._buffer[record.stage_offset] = stage
        _current.record = record
        return record

    @contextmanager
    def record(
        self, stage: Stage, subject: bytes, deadline_ns: int = 0, cancellation: Cancellation | None = None
    ) -> Iterator[None]:
        """Keep a record while the body runs. The arguments are those of `begin`."""
        record = self.begin(stage, subject, deadline_ns, cancellation)
        try:
            yield
        finally:
            self.end(record)

    def end(self, record: ActivityRecord | None) -> None:
        """Clear the record of work that ends on the calling thread."""
        if record is None:
            return
        _current.record = None
        self._buffer[record.stage_offset] = _IDLE
        record.cancellation = None
        if record.has_times:
            record.has_times = False
            _TIMES.pack_into(self._buffer, record.offset + _TIMES_OFFSET, 0, 0, 0, 0)
        self._free.append(record)

    @property
    def count(self) -> int:
        """Number of records in use."""
        return CAPACITY - len(self._free)

    def publish(self) -> None:
        """Write into the records since when work is in progress, and what is cancelled. For one thread, regularly."""
        for record in self._records:
            cancellation = record.cancellation
            if cancellation is None:
                continue
            if not record.is_published:
                record.is_published = True
                self._write_time(record, _STARTED_OFFSET, now_ns())
                self._write_time(record, _EXPECTED_OFFSET, record.expected_ns)
            at = record.offset + _CANCELLED_OFFSET
            if cancellation.cancelled and not any(self._buffer[at : at + _INT64.size]):
                record.has_times = True
                self._write_time(record, _CANCELLED_OFFSET, now_ns())
                if record.cancellation is not cancellation:  # the work has ended meanwhile
                    self._write_time(record, _CANCELLED_OFFSET, 0)

    def _write_time(self, record: ActivityRecord, offset: int, value: int) -> None:
        self._write(record.offset + offset, value)

    def _write(self, offset: int, value: int) -> None:
        _INT64.pack_into(self._buffer, offset, value)

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
        subject, started, deadline, cancelled, expected, thread, stage, backend = _RECORD.unpack_from(
            buffer, number * _RECORD.size
        )
        if stage != Stage.IDLE:
            id_ = backends[backend - 1] if 0 < backend <= len(backends) else ""
            digest, client = (part if any(part) else b"" for part in (subject[:DIGEST_BYTES], subject[DIGEST_BYTES:]))
            activities.append(
                Activity(Stage(stage), digest, client, id_, started, deadline, cancelled, expected, thread)
            )
    return activities


def is_in_progress(digest: bytes, buffer: memoryview) -> bool:
    """Return whether a table has work in progress on a model. `buffer` is as in `read_activities`."""
    return digest in bytes(buffer) and any(activity.digest == digest for activity in read_activities(buffer, ()))
