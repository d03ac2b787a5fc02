"""Limits on the memory of the process, and settings of malloc.

An operation may need many times the bytes of its tensors, and many clients may need much memory at once. So limits on
single objects do not bound the whole. When the machine runs out of memory, the kernel kills the process and all its
sessions. With a limit on the process, an allocation fails instead, and only the call that made it fails.
"""

import ctypes
import os
import resource
import threading
from contextlib import suppress
from pathlib import Path

from nnhal_driver.mapped_memory import MAPPED_BYTES

_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_SHARE = 0.9
"""Share of the machine's memory that the process may have; the rest is for the kernel and other processes."""
_OWN_BYTES = 128 * 2**20
"""Memory that a service without clients needs: 75 MiB with CpuAcc, without stacks."""
_RESERVED_SHARE = 8
"""Part of the memory (one eighth) for what is not counted: messages on their way, and objects of the interpreter."""
_STACK_BYTES = 8 * 2**20
"""Stack size of a thread if the system has no limit."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Constants M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h."""
_TRIM_BYTES = 64 * 2**20
"""Free bytes that malloc keeps at the end of its heap: enough to prepare and execute some models of usual size."""


def tune_malloc() -> None:
    """Configure malloc to use one heap, and to keep some freed memory.

    Call it before other threads start, because existing heaps stay. By default there are eight heaps for each core, and
    each keeps the most that its threads ever used at a time. A service would then grow with thousands of clients,
    although none of the memory is in use.

    The memory of a released model is kept for the next one until the last session ends. Otherwise the kernel would
    clear it again page by page, which takes longer than to load a model from the cache. This does nothing without
    glibc's malloc.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)


def limit_memory(size: int, threads: int) -> int:
    """Limit the memory that this process may allocate, and return the limit. Memory shared with others does not count.

    Args:
        size: bytes; 0: nine tenths of the memory of the machine or its container.
        threads: largest number of threads. The kernel counts the whole of their stacks, of which they use little.
    """
    limit = (size or _default_bytes()) + _stack_bytes(threads)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY or limit < soft:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        return limit
    return soft


class _ThreadFollower:
    """Limit that has room for the stacks of the threads there are. Thread safe.

    The stacks of all threads that a worker may have are 7 GiB: an operation could use them for its temporaries.
    """

    def __init__(self) -> None:
        self._size = self._limit = 0
        self._lock = threading.Lock()

    def start(self, size: int, limit: int) -> None:
        """Follow the threads from now on. The arguments are that of `limit_memory`, and what it has returned."""
        self._size, self._limit = size or _default_bytes(), limit

    def adjust(self, starting: int = 0) -> None:
        """Adjust the limit to the threads there are, and to those that start now."""
        if not self._limit:
            return
        with self._lock, suppress(OSError):  # without descriptors, the limit stays as it is
            threads = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[17])
            now = min(self._limit, self._size + _stack_bytes(threads + starting))
            resource.setrlimit(resource.RLIMIT_DATA, (now, resource.getrlimit(resource.RLIMIT_DATA)[1]))


thread_follower = _ThreadFollower()
"""The one of this process. It does nothing until it is started."""


def limit_growth(size: int, threads: int, shared: int) -> None:
    """Limit the memory that this process may allocate besides what it has, and the files that it may write."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + size + _stack_bytes(threads),) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (shared, shared))


def client_bytes(size: int, threads: int) -> int:
    """Return the bytes that clients may use, so that the limit of the process is never reached: see `limit_memory`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    whole = size or _default_bytes()
    if soft != resource.RLIM_INFINITY:
        whole = min(whole, soft - _stack_bytes(threads))
    return max(whole - whole // _RESERVED_SHARE - _OWN_BYTES, whole // _RESERVED_SHARE)


def _default_bytes() -> int:
    return int(available_bytes() * _SHARE)


def _stack_bytes(threads: int) -> int:
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return threads * (_STACK_BYTES if stack == resource.RLIM_INFINITY else stack)


def resident_bytes() -> int:
    """Return the memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def available_bytes() -> int:
    """Return the bytes of memory of the machine or its container."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_container_limits()])


def _container_limits() -> list[int]:
    texts = [path.read_text().strip() for path in _CONTAINER_LIMITS if path.exists()]
    return [int(text) for text in texts if text.isdecimal()]
