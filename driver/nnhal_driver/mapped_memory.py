"""Large memory in mappings of its own, whose pages can be replaced by those of a file.

`nnhal_driver.backends.litert.page_sharing` replaces pages, and only those of an `OwnMapping`.
"""

import ctypes
import mmap
import os

import numpy as np

from nnhal.types import AnyArray, Bytes

MAPPED_BYTES = 32 * 2**20
"""Bytes from which memory gets a mapping of its own, so that freeing it returns it to the system. This is also the
largest mmap threshold that glibc's malloc accepts (mallopt(3))."""


class OwnMapping(mmap.mmap):
    """A private mapping made by this process. Freeing it unmaps the range, including pages that replaced others."""


def trim_memory() -> None:
    """Return the free memory that malloc keeps to the system. Takes some milliseconds.

    Does nothing without glibc's malloc.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def allocate(size: int, *, zeroed: bool = True) -> Bytes:
    """Return writable memory of a size in bytes, all 0 if `zeroed`; from `MAPPED_BYTES` on in an `OwnMapping`.

    Raises:
        MemoryError: there is not enough memory.
    """
    if size < MAPPED_BYTES:
        return np.zeros(size, np.uint8) if zeroed else np.empty(size, np.uint8)
    try:
        return np.frombuffer(OwnMapping(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"cannot map {size} bytes: {error}") from error


def read_at(descriptor: int, size: int, start: int = 0) -> Bytes:
    """Return a part of a file in memory, read-only; less of it if the file ends before. Its offset is not moved.

    Raises:
        OSError: the file cannot be read.
        MemoryError: there is not enough memory.
    """
    memory = allocate(size, zeroed=False)
    done = 0
    while done < size and (count := os.preadv(descriptor, [memory[done:].data], start + done)):
        done += count
    memory.flags.writeable = False
    return memory[:done]


def in_own_mapping(array: AnyArray) -> bool:
    """Return whether an array is a view of an `OwnMapping`."""
    base = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, OwnMapping)
