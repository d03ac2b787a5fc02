"""How much memory the process may have.

An operation may need many times the bytes of its tensors, and many clients may need much at once: limits on single
things do not bound the whole. Where memory runs out the kernel ends the process, and every session with it. A limit on
the process makes an allocation fail instead, and with it only the call that asked for it.
"""

import ctypes
import os
import resource
from pathlib import Path

_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_SHARE = 0.9
"""Of the machine's memory; the rest is for the kernel and whatever else runs."""
_STACK_BYTES = 8 * 2**20
"""Of a thread, where the system does not say."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""M_... of malloc.h."""
_KEPT_BYTES = 64 * 2**20
"""What malloc keeps at the end of its heap: what preparing and executing some models of usual size takes."""
_OWN_MAPPING_BYTES = 32 * 2**20
"""From so many bytes on memory has a mapping of its own, which goes when it is let go; malloc allows no more."""


def tune_malloc() -> None:
    """Has malloc take all memory from one heap, and keep some of what is let go.

    Call it before there are other threads: heaps that are there stay. Else there are eight for each core, and each
    keeps the most that its threads ever had at one time: a service grows for thousands of clients, though nothing of it
    is in use. What a model leaves is kept for the next one until the last session ends: else the kernel has to clear
    it again, page by page, which takes longer than reading a model from the cache. Where malloc is another one,
    nothing happens.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)


def give_back_memory() -> None:
    """Returns what malloc keeps, and nothing uses, to the system. Takes some milliseconds."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def limit_memory(wanted: int, threads: int) -> None:
    """Limits what this process may allocate, memory that it shares with others aside.

    Args:
        wanted: bytes; 0: nine tenths of what the machine or its container has.
        threads: how many there may be; the kernel counts their stacks, of which they use little.
    """
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stacks = threads * (_STACK_BYTES if stack == resource.RLIM_INFINITY else stack)
    limit = (wanted or int(available() * _SHARE)) + stacks
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY or limit < soft:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def available() -> int:
    """Bytes of memory that the machine has, or its container may use."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_container_limits()])


def _container_limits() -> list[int]:
    texts = [path.read_text().strip() for path in _CONTAINER_LIMITS if path.exists()]
    return [int(text) for text in texts if text.isdecimal()]
