"""Planned memory for a backend's intermediate tensors, in one block.

    memory = MemoryManager(MemoryMode.NORMAL)
    a = memory.get(1000, Storage.DYNAMIC)      # while planning, in the order of execution
    b = memory.get(500, Storage.DYNAMIC)
    memory.put(a)                              # later pieces may reuse the bytes of a
    memory.acquire()                           # the host, around each execution (CompiledSubgraph.memory)
    memory.bytes(b)                            # 500 bytes, at a multiple of 64
    memory.release()

DYNAMIC pieces share bytes of the block if their lifetimes do not overlap. DYNAMIC_SEPARATE pieces are in the block too
and share no bytes. STATIC pieces have memory of their own until they are put back; `clear` does not affect them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from nnhal.alignment import ALIGNMENT, align
from nnhal.types import Bytes

Allocator = Callable[[int], Bytes]
"""Returns a writable block of a given size, at a multiple of ALIGNMENT. It is freed with the last reference to it."""


class Storage(Enum):
    """Lifetime of a piece, and whether its bytes may be shared."""

    STATIC = auto()
    DYNAMIC = auto()
    DYNAMIC_SEPARATE = auto()


class MemoryMode(Enum):
    """NORMAL: the block stays allocated between executions. LIMIT: it is freed after each."""

    NORMAL = auto()
    LIMIT = auto()


@dataclass(eq=False)
class Piece:
    """Requested memory. `offset`: position in the block; unused for STATIC."""

    size: int
    storage: Storage
    offset: int = 0
    _own: Bytes | None = field(default=None, repr=False)


def allocate_aligned(size: int) -> Bytes:
    """Return writable memory at a multiple of ALIGNMENT. The default allocator."""
    block = np.empty(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size]


class MemoryManager:
    """Planner of pieces in one block. Not thread safe.

    Attributes:
        peak_bytes: size of the block.
        sum_bytes: size that the block would have without sharing.
        on_allocate: called with each new block, for example to register it with a device; in mode LIMIT, and after new
            planning, there is a new one. (1.2)
    """

    def __init__(self, mode: MemoryMode = MemoryMode.NORMAL, allocate: Allocator = allocate_aligned) -> None:
        self._mode = mode
        self._allocate = allocate
        self._block: Bytes | None = None
        self._free: list[tuple[int, int]] = []
        self.peak_bytes = 0
        self.sum_bytes = 0
        self.on_allocate: Callable[[Bytes], None] | None = None

    def get(self, size: int, storage: Storage) -> Piece:
        """Add a piece. A DYNAMIC piece takes the smallest gap that is large enough.

        The memory of a STATIC piece is available immediately, that of others between `acquire` and `release`.

        Raises:
            ValueError: the size is negative.
            MemoryError: there is not enough memory for a STATIC piece.
        """
        if size < 0:
            raise ValueError(f"a piece of memory has {size} bytes; expected 0 or more")
        aligned_size = align(size)
        if storage is Storage.STATIC:
            return Piece(size, storage, 0, self._allocate(size))
        self.sum_bytes += aligned_size
        offset = self._take_gap(aligned_size) if storage is Storage.DYNAMIC else None
        if offset is None:
            offset = self._extend(aligned_size, storage)
        self._block = None
        return Piece(size, storage, offset)

    def put(self, piece: Piece) -> None:
        """Release a piece. Later pieces may reuse the bytes of a DYNAMIC one, but not of a DYNAMIC_SEPARATE one."""
        if piece.storage is Storage.STATIC:
            piece._own = None
        elif piece.storage is Storage.DYNAMIC and piece.size:
            self._add_gap(piece.offset, piece.offset + align(piece.size))

    def acquire(self) -> None:
        """Allocate the block. Its contents are undefined.

        Raises:
            MemoryError: there is not enough memory.
        """
        if self._block is None:
            self._block = self._allocate(self.peak_bytes)
            if self.on_allocate is not None and self.peak_bytes:
                self.on_allocate(self._block)

    def release(self) -> None:
        """Free the block in mode LIMIT."""
        if self._mode is MemoryMode.LIMIT:
            self._block = None

    def clear(self) -> None:
        """Remove all DYNAMIC and DYNAMIC_SEPARATE pieces and free the block, to plan again."""
        self._block = None
        self._free = []
        self.peak_bytes = self.sum_bytes = 0

    def bytes(self, piece: Piece) -> Bytes:
        """Return the memory of a piece."""
        if piece.storage is Storage.STATIC:
            assert piece._own is not None, "the piece was released"
            return piece._own
        assert self._block is not None, "the block is only allocated between acquire and release"
        return self._block[piece.offset : piece.offset + piece.size]

    @property
    def is_held(self) -> bool:
        """True while the block is allocated."""
        return self._block is not None

    def _take_gap(self, aligned_size: int) -> int | None:
        fitting = [(end - start, i) for i, (start, end) in enumerate(self._free) if end - start >= aligned_size]
        if not fitting or not aligned_size:
            return None
        _, i = min(fitting)
        start, end = self._free[i]
        self._free[i : i + 1] = [(start + aligned_size, end)] if start + aligned_size < end else []
        return start

    def _extend(self, aligned_size: int, storage: Storage) -> int:
        """Extend the block by a piece and return its offset. A DYNAMIC piece begins in the gap at the end, if any."""
        start = self.peak_bytes
        if storage is Storage.DYNAMIC and aligned_size and self._free and self._free[-1][1] == self.peak_bytes:
            start = self._free.pop()[0]
        self.peak_bytes = start + aligned_size
        return start

    def _add_gap(self, start: int, end: int) -> None:
        gaps: list[tuple[int, int]] = []
        for first, last in sorted([*self._free, (start, end)]):
            if gaps and gaps[-1][1] == first:
                gaps[-1] = (gaps[-1][0], last)
            else:
                gaps.append((first, last))
        self._free = gaps
