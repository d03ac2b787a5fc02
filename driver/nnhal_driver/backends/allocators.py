"""Allocators of the operator or of a program, which a device offers to its backends.

A backend that accepts the allocator uses it for all memory of tensors: planned blocks, intermediate values, outputs.
"""

import ctypes as c
import logging
import mmap
import threading
import weakref
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

import numpy as np

from nnhal.alignment import ALIGNMENT
from nnhal.errors import exception_text
from nnhal.types import Bytes

_HUGE_PAGE = 2**21
_MIN_HUGE = _HUGE_PAGE // 2
"""Size from which an allocation pays for a huge page."""

_log = logging.getLogger(__name__)


class MemorySource(IntEnum):
    """Kind of memory that an allocator returns. A backend may accept some kinds only."""

    MALLOC = 0
    HUGE_PAGES = 1
    LOCKED = 2
    DMA_BUF = 3
    OTHER = 4


class CustomAllocator(Protocol):
    """Allocator for the memory of tensors. Called from any thread, and from several at the same time."""

    @property
    def source(self) -> MemorySource:
        """Kind of its memory, which this process can read and write."""

    def allocate(self, size: int, alignment: int) -> int:
        """Return the address of `size` > 0 writable bytes, at a multiple of a power of two; 0 without memory."""

    def free(self, address: int) -> None:
        """Free what `allocate` returned. Called once, possibly long after the device is closed."""


def memory_at(address: int, size: int, free: Callable[[], object]) -> Bytes:
    """Return memory as an array. It is freed with the last reference to it."""
    block = _Block(address, size)
    weakref.finalize(block, free).atexit = False
    return np.asarray(block)


class _Block:
    """Memory that arrays over it keep alive."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


def allocate_with(allocator: CustomAllocator) -> Callable[[int], Bytes]:
    """Return an allocator's function for a `MemoryManager`, or for outputs that the host keeps.

    It returns a block of a given size, and raises MemoryError if there is none, also for an invalid address.
    """

    def allocate(size: int) -> Bytes:
        try:
            address = allocator.allocate(max(size, 1), ALIGNMENT)
        except Exception as error:
            raise MemoryError(f"the allocator failed: {exception_text(error)}") from error
        if not isinstance(address, int) or address <= 0:
            raise MemoryError(f"the allocator has no {size} bytes")
        block = memory_at(address, size, lambda: allocator.free(address))
        if address % ALIGNMENT:
            raise MemoryError(f"the allocator returned address {address:#x}; expected a multiple of {ALIGNMENT}")
        return block

    return allocate


class PageAllocator:
    """Allocator of whole pages: huge ones, or ones that are never swapped out. It suits large tensors.

    HUGE_PAGES asks the kernel for transparent huge pages of 2 MiB; allocations below 1 MiB have ordinary pages. LOCKED
    counts against RLIMIT_MEMLOCK; an allocation that exceeds it fails.
    """

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self._regions: dict[int, mmap.mmap] = {}
        self._lock = threading.Lock()

    @property
    def source(self) -> MemorySource:
        """Kind of its pages."""
        return self._source

    def allocate(self, size: int, alignment: int) -> int:
        """Return the address of pages; 0 without memory."""
        huge = self._source is MemorySource.HUGE_PAGES and size >= _MIN_HUGE
        page = max(alignment, _HUGE_PAGE if huge else mmap.PAGESIZE)
        length = -(-size // page) * page
        try:
            region = mmap.mmap(-1, length + page - mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            _log.warning("the allocator has no %d bytes: %s", size, error.strerror)
            return 0
        start = c.addressof(c.c_char.from_buffer(region))
        offset = -start % page
        if huge:
            region.madvise(mmap.MADV_HUGEPAGE, offset, length)
        elif self._source is MemorySource.LOCKED and (error_number := _lock_pages(start, length)):
            _log.warning("%d bytes cannot be locked: errno %d; see RLIMIT_MEMLOCK (ulimit -l)", size, error_number)
            return 0
        with self._lock:
            self._regions[start + offset] = region
        return start + offset

    def free(self, address: int) -> None:
        """Unmap the pages."""
        with self._lock:
            region = self._regions.pop(address)
        region.close()


def _lock_pages(address: int, length: int) -> int:
    """Lock pages into memory. Return an error number, or 0."""
    libc = c.CDLL(None, use_errno=True)
    return 0 if libc.mlock(c.c_void_p(address), c.c_size_t(length)) == 0 else c.get_errno()
