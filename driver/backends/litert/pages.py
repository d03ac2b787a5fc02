"""One copy of large constants: memory that holds what a file holds gives its pages up for the file's.

A model of 300 MB arrives in memory of the client's session and is needed in the engine's file. Both stay: the one is
read by CpuRef and by later preparations, and is known by its digest; the other is what interpreters map. The memory
keeps its address and its bytes; the kernel keeps them once.
"""

import ctypes
import mmap

import numpy as np

from nnhal.types import AnyArray

PAGE = mmap.PAGESIZE
LEAST = 64 * 1024
"""Bytes of an array that are worth it: each costs the kernel a mapping."""
_OWN_MAPPING = 33 * 2**20
"""Bytes from which malloc gives memory a mapping of its own, whatever it has learnt. Smaller memory returns to a heap,
where pages of the file would keep the file alive long after everybody has let it go."""
_ALIGNMENT = 16
"""Bytes at which the engine needs constants to begin."""
_MAP_FIXED = 0x10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64)


def is_shareable(array: AnyArray) -> bool:
    """Whether the pages of an array can become those of a file: nobody writes to it, and it is large."""
    return (
        not array.flags.writeable
        and bool(array.flags.c_contiguous)
        and array.nbytes >= LEAST
        and address(array) % _ALIGNMENT == 0
        and _owner(array).nbytes >= _OWN_MAPPING
    )


def share(array: AnyArray, descriptor: int, offset: int) -> None:
    """Lays a file's pages under an array that holds the same bytes.

    The pages are private: the file does not change if somebody writes to the memory after all. Both copies stay where
    the two lie at different places of a page, or the kernel refuses (a process may have so many mappings).

    Args:
        array: one that `is_shareable`.
        descriptor: a file that does not change any more where the array's bytes are.
        offset: where they begin.
    """
    start = address(array)
    if start % PAGE != offset % PAGE:
        return
    first, end = -(-start // PAGE) * PAGE, (start + array.nbytes) // PAGE * PAGE
    _libc.mmap(
        first,
        end - first,
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_PRIVATE | _MAP_FIXED,
        descriptor,
        offset + first - start,
    )


def address(array: AnyArray) -> int:
    """Where the first byte of an array is."""
    return int(array.ctypes.data)


def _owner(array: AnyArray) -> AnyArray:
    """The array whose memory it is."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
