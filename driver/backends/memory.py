"""Memory of a backend's intermediate tensors: acquired and released while it plans, then one block for all of it.

    memory = MemoryManager(MemoryMode.NORMAL)
    a = memory.get(1000, Storage.DYNAMIC)      # while planning, in the order of execution
    b = memory.get(500, Storage.DYNAMIC)
    memory.put(a)                              # what comes later may lie where a was
    memory.acquire()                           # the host, around each execution (CompiledSubgraph.memory)
    memory.bytes(b)                            # 500 bytes, at a multiple of 64
    memory.release()

Pieces of storage DYNAMIC share the block by their lifetimes; so do not those of DYNAMIC_SEPARATE, which begin and end
with an execution as well. STATIC ones live until they are put back, and `clear` does not touch them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from nnhal.types import Bytes

ALIGNMENT = 64
"""Of every piece, in bytes."""

Allocator = Callable[[int], Bytes]
"""Gives a writable block of that many bytes, at a multiple of ALIGNMENT. It is freed with the last reference to it."""


class Storage(Enum):
    """How long a piece is needed, and whether its bytes may be shared."""

    STATIC = auto()
    DYNAMIC = auto()
    DYNAMIC_SEPARATE = auto()


class MemoryMode(Enum):
    """NORMAL: the block stays between executions. LIMIT: it is given back after each."""

    NORMAL = auto()
    LIMIT = auto()


@dataclass(eq=False)
class Piece:
    """Memory that was asked for. `offset`: in the block; STATIC pieces have memory of their own."""

    size: int
    storage: Storage
    offset: int = 0
    _own: Bytes | None = field(default=None, repr=False)


def aligned(size: int) -> Bytes:
    """The default allocator."""
    block = np.empty(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size]


class MemoryManager:
    """Plans pieces into one block. For one thread at a time.

    Args:
        allocate: where memory comes from.

    Attributes:
        peak_bytes: size of the block.
        sum_bytes: what all DYNAMIC and DYNAMIC_SEPARATE pieces together would take without sharing.
    """

    def __init__(self, mode: MemoryMode = MemoryMode.NORMAL, allocate: Allocator = aligned) -> None:
        self._mode = mode
        self._allocate = allocate
        self._block: Bytes | None = None
        self._free: list[tuple[int, int]] = []
        self.peak_bytes = 0
        self.sum_bytes = 0

    def get(self, size: int, storage: Storage) -> Piece:
        """Asks for memory. DYNAMIC pieces prefer the smallest gap that is large enough.

        Only STATIC pieces have their bytes at once; the others are there between `acquire` and `release`.
        """
        room = -(-size // ALIGNMENT) * ALIGNMENT
        if storage is Storage.STATIC:
            return Piece(size, storage, 0, self._allocate(size))
        self.sum_bytes += room
        offset = self._gap(room) if storage is Storage.DYNAMIC else None
        if offset is None:
            offset = self._end(room, storage)
        self._block = None
        return Piece(size, storage, offset)

    def put(self, piece: Piece) -> None:
        """Gives a piece back: a DYNAMIC one to those that come after it; a DYNAMIC_SEPARATE one is never reused."""
        if piece.storage is Storage.STATIC:
            piece._own = None
        elif piece.storage is Storage.DYNAMIC and piece.size:
            self._add_gap(piece.offset, piece.offset + -(-piece.size // ALIGNMENT) * ALIGNMENT)

    def acquire(self) -> None:
        """Makes the block. Its bytes are arbitrary.

        Raises:
            MemoryError: there is not enough.
        """
        if self._block is None:
            self._block = self._allocate(self.peak_bytes)

    def release(self) -> None:
        """In mode LIMIT gives the block back."""
        if self._mode is MemoryMode.LIMIT:
            self._block = None

    def clear(self) -> None:
        """Forgets all DYNAMIC and DYNAMIC_SEPARATE pieces and their block, to plan anew."""
        self._block = None
        self._free = []
        self.peak_bytes = self.sum_bytes = 0

    def bytes(self, piece: Piece) -> Bytes:
        """The memory of a piece."""
        if piece.storage is Storage.STATIC:
            assert piece._own is not None, "the piece was put back"
            return piece._own
        assert self._block is not None, "there is memory between acquire and release"
        return self._block[piece.offset : piece.offset + piece.size]

    @property
    def is_held(self) -> bool:
        """Whether the block is there."""
        return self._block is not None

    def _gap(self, room: int) -> int | None:
        fitting = [(end - start, start) for start, end in self._free if end - start >= room]
        if not fitting or not room:
            return None
        _, start = min(fitting)
        self._take(start, start + room)
        return start

    def _end(self, room: int, storage: Storage) -> int:
        """At the end of the block; a gap that ends there is made larger."""
        start = self.peak_bytes
        if storage is Storage.DYNAMIC and room and self._free and self._free[-1][1] == self.peak_bytes:
            start = self._free.pop()[0]
        self.peak_bytes = start + room
        return start

    def _take(self, start: int, end: int) -> None:
        gaps = []
        for first, last in self._free:
            gaps += [(first, last)] if start >= last or end <= first else [(first, start), (end, last)]
        self._free = [(first, last) for first, last in gaps if first < last]

    def _add_gap(self, start: int, end: int) -> None:
        gaps: list[tuple[int, int]] = []
        for first, last in sorted([*self._free, (start, end)]):
            if gaps and gaps[-1][1] == first:
                gaps[-1] = (gaps[-1][0], last)
            else:
                gaps.append((first, last))
        self._free = gaps
