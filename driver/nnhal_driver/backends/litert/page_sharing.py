"""Page sharing between large constants and the engine's model file, so that memory holds them once.

A large model arrives in memory of the client's session, and the engine needs it in its file. CpuRef and later
preparations read the session's memory, and interpreters map the file. Sharing replaces pages of the session's memory
by those of the file. Addresses and bytes do not change.

Only mappings that this process made itself (`OwnMapping`) are shared. malloc might reuse any other memory.
"""

import ctypes
import mmap

from nnhal.types import AnyArray
from nnhal_driver.mapped_memory import in_own_mapping
from nnhal_driver.overlaps import address

PAGE = mmap.PAGESIZE
MIN_BYTES = 64 * 1024
"""Minimum size of a shared array. Each array costs the kernel a mapping."""
_ALIGNMENT = 16
"""Alignment that the engine needs for constants."""
_MAP_FIXED = 0x10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64)


def is_shareable(array: AnyArray) -> bool:
    """Return whether an array can share the pages of a file: read-only, large and in an `OwnMapping`."""
    return (
        array.nbytes >= MIN_BYTES
        and not array.flags.writeable
        and bool(array.flags.c_contiguous)
        and address(array) % _ALIGNMENT == 0
        and in_own_mapping(array)
    )


def share(array: AnyArray, descriptor: int, offset: int) -> None:
    """Replace the pages of an array by those of a file that holds the same bytes.

    The pages are mapped privately, so writing to the array cannot change the file. If the kernel refuses, because a
    process has too many mappings, both copies stay. These bytes of the file must not change any more. They begin at
    the array's address, modulo the page size.
    """
    start = address(array)
    assert start % PAGE == offset % PAGE, "the array and its bytes in the file have different offsets within a page"
    first, end = -(-start // PAGE) * PAGE, (start + array.nbytes) // PAGE * PAGE
    _libc.mmap(
        first,
        end - first,
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_PRIVATE | _MAP_FIXED,
        descriptor,
        offset + first - start,
    )
