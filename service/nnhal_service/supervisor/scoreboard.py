"""Scoreboard: memory that the supervisor shares with all workers. Each worker writes only its own row.

A row tells state, heartbeat, load and work in progress of a worker. The supervisor reads them to find workers that
hang, and the suspect of a crash. The workers read them to send new sessions to the least loaded one, and to add up what
each identity uses of its quotas. The states of all rows come first, then their turns, then what the supervisor writes:
the private ports of the workers, and the offenders.

A report is many bytes, and a process may be suspended while it writes them. So a row has two copies, which the worker
writes in turn: the turn names the one that is complete.
"""

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from nnhal_driver.activity import TABLE_BYTES
from nnhal_service.identity import held_places, use_ledger
from nnhal_service.identity.use_ledger import UseTable
from nnhal_service.supervisor import offenders
from nnhal_service.supervisor.offenders import OffenderTable

MAX_WORKERS = 64
"""Workers that serve any client."""
SLOTS = 256
"""Numbers of workers: the last byte of the token of a session. Those above serve one client each."""
ROWS = 2 * SLOTS
"""Number of rows. During a reload, a worker and its successor have one each."""

NO_OWNER = bytes(16)
"""Digest of no client."""
_HEADER = struct.Struct("<iHxxqqIIQ16s")
_REDIRECTS = struct.Struct(f"<{MAX_WORKERS}I")
_PORT = struct.Struct("<H")
_PORTS_OFFSET = 2 * ROWS
_OFFENDERS_OFFSET = _PORTS_OFFSET + SLOTS * _PORT.size
_STATE_BYTES = -(-(_OFFENDERS_OFFSET + offenders.TABLE_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
_COPY_BYTES = _HEADER.size + _REDIRECTS.size
_COPIES = 2
_USE_BYTES = -(-use_ledger.TABLE_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
_STATUS_BYTES = -(-(_COPIES * _COPY_BYTES + TABLE_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
_ROW_BYTES = _USE_BYTES + _STATUS_BYTES
_PLACES_OFFSET = _STATE_BYTES + ROWS * _ROW_BYTES


class WorkerState(IntEnum):
    """State of a worker."""

    EMPTY = 0
    STARTING = 1
    SERVING = 2
    DRAINING = 3


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """Report of a worker on itself.

    Attributes:
        pid: id of its process.
        slot: its number, which its successors inherit.
        heartbeat_ns: instant of CLOCK_BOOTTIME of the last heartbeat.
        serving_ns: instant at which it began to serve; 0 before.
        executions: number of executions and preparations in progress.
        generation: number of the start, over all workers.
        redirects: for each slot of those that serve any client, the clients that it has just sent there.
        owner: digest of the only client that it serves; zeros if it serves any.
    """

    pid: int
    slot: int
    state: WorkerState
    heartbeat_ns: int
    serving_ns: int
    sessions: int
    executions: int
    generation: int
    redirects: tuple[int, ...]
    owner: bytes = NO_OWNER


NOBODY = WorkerStatus(0, 0, WorkerState.EMPTY, 0, 0, 0, 0, 0, (0,) * MAX_WORKERS)


class Scoreboard:
    """The shared memory. Create it before the processes that share it are forked."""

    def __init__(self) -> None:
        # unused pages take no memory
        self._mapped = mmap.mmap(-1, _PLACES_OFFSET + ROWS * held_places.TABLE_BYTES)
        self._memory = memoryview(self._mapped)

    def close(self) -> None:
        """Unmap the memory in this process, which does not use it."""
        self._memory.release()
        self._mapped.close()

    def write(self, row: int, status: WorkerStatus) -> None:
        """Write everything about a worker except its work in progress."""
        turn = (self._memory[ROWS + row] + 1) & 0xFF
        offset = _copy_offset(row, turn)
        _HEADER.pack_into(
            self._memory,
            offset,
            status.pid,
            status.slot,
            status.heartbeat_ns,
            status.serving_ns,
            status.sessions,
            status.executions,
            status.generation,
            status.owner,
        )
        _REDIRECTS.pack_into(self._memory, offset + _HEADER.size, *status.redirects)
        self._memory[ROWS + row] = turn
        self._memory[row] = status.state

    def read(self, row: int) -> WorkerStatus:
        """Return what a worker reports."""
        state, turn, last = self._memory[row], self._memory[ROWS + row], -1
        while turn != last:  # else the worker may have written this copy meanwhile
            offset = _copy_offset(row, turn)
            header = _HEADER.unpack_from(self._memory, offset)
            redirects = _REDIRECTS.unpack_from(self._memory, offset + _HEADER.size)
            turn, last = self._memory[ROWS + row], turn
        pid, slot, heartbeat, serving, sessions, executions, generation, owner = header
        return WorkerStatus(
            pid, slot, WorkerState(state), heartbeat, serving, sessions, executions, generation, redirects, owner
        )

    def set_port(self, slot: int, port: int) -> None:
        """Publish the private TCP port of a worker. For the supervisor."""
        _PORT.pack_into(self._memory, _PORTS_OFFSET + slot * _PORT.size, port)

    def port(self, slot: int) -> int:
        """Return the private TCP port of a worker, or 0."""
        return int(_PORT.unpack_from(self._memory, _PORTS_OFFSET + slot * _PORT.size)[0])

    @property
    def offenders(self) -> OffenderTable:
        """The offenders, which only the supervisor writes."""
        return OffenderTable(self._memory[_OFFENDERS_OFFSET : _OFFENDERS_OFFSET + offenders.TABLE_BYTES])

    def activities(self, row: int) -> memoryview:
        """Return the memory of the table of a worker's work in progress."""
        offset = _status_offset(row) + _COPIES * _COPY_BYTES
        return self._memory[offset : offset + TABLE_BYTES]

    def clear(self, row: int) -> None:
        """Empty a row, before or after its use."""
        self._memory[row] = WorkerState.EMPTY
        offset = _status_offset(row)
        self._memory[offset : offset + _STATUS_BYTES] = bytes(_STATUS_BYTES)
        UseTable(self.use_table(row)).clear()

    def serving(self) -> Iterator[WorkerStatus]:
        """Yield the workers that accept sessions."""
        return (status for status in self.workers() if status.state is WorkerState.SERVING)

    def workers(self) -> Iterator[WorkerStatus]:
        """Yield all workers."""
        for row in self.rows(self.worker_states(), draining=True):
            yield self.read(row)

    def use_table(self, row: int) -> memoryview:
        """Return the memory of the table of what identities use in a worker: see `use_ledger`."""
        offset = _status_offset(row) + _STATUS_BYTES
        return self._memory[offset : offset + use_ledger.TABLE_BYTES]

    def place_tables(self) -> Sequence[memoryview]:
        """Return the memory of the tables of places that are held, by row: see `held_places`."""
        places, size = self._memory[_PLACES_OFFSET:], held_places.TABLE_BYTES
        return [places[row * size : (row + 1) * size] for row in range(ROWS)]

    def worker_states(self) -> bytes:
        """Return the state of each row, as one byte."""
        return bytes(self._memory[:ROWS])

    def rows(self, states: bytes, *, draining: bool) -> Sequence[int]:
        """Return the rows that have workers, with or without those that drain."""
        without = (WorkerState.EMPTY,) if draining else (WorkerState.EMPTY, WorkerState.DRAINING)
        return [row for row, state in enumerate(states) if state not in without]


def _status_offset(row: int) -> int:
    return _STATE_BYTES + row * _ROW_BYTES


def _copy_offset(row: int, turn: int) -> int:
    return _status_offset(row) + turn % _COPIES * _COPY_BYTES
