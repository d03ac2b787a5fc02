"""Mapping of memfds that a client on the same machine shares.

A memfd must be sealed so that it can neither shrink nor grow: reading a part that was cut off would end this process.
The client can write to it at any time, so `nnhal_driver.graph.array_from_bytes` copies values before they are checked.
A memfd that is also sealed against writing is mapped read-only, and its values are used in place.
"""

import fcntl
import mmap
import os
import weakref

import numpy as np

from nnhal.errors import HalError, invalid_argument
from nnhal.types import PROT_READ, PROT_WRITE, Bytes, ErrorStatus, Memory
from nnhal_driver.execution.buffer import ReserveMemory, reserve_nothing
from nnhal_driver.mapped_memory import OwnMapping
from nnhal_service.sessions.limits import Limits

_FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def map_memory(descriptor: int, limits: Limits, reserve: ReserveMemory = reserve_nothing) -> Memory:
    """Map a memfd. The caller keeps the descriptor. `reserve` reserves the memory until it is unmapped.

    Raises:
        HalError: INVALID_ARGUMENT: it is not a memfd, not sealed, made of huge pages, or empty.
            RESOURCE_EXHAUSTED_*: it is too large, or `reserve` raises.
    """
    seals = _seals(descriptor)
    if seals & _FIXED_SIZE != _FIXED_SIZE:
        raise invalid_argument("the memfd is not sealed with F_SEAL_SHRINK and F_SEAL_GROW")
    if os.fstatvfs(descriptor).f_bsize != mmap.PAGESIZE:
        # reading a huge page when no huge page is free would end this process
        raise invalid_argument(f"the memfd is made of huge pages; expected pages of {mmap.PAGESIZE} bytes")
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise invalid_argument("the memfd is empty")
    limits.require("pool_bytes", size, "the memory has")
    reservation = reserve(size)
    constant = bool(seals & fcntl.F_SEAL_WRITE)
    memory = Memory(_map(descriptor, size, constant=constant), prot=PROT_READ if constant else PROT_READ | PROT_WRITE)
    weakref.finalize(memory.buffer, lambda _: None, reservation).atexit = False
    return memory


def _seals(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as error:
        raise invalid_argument(f"the descriptor is not a memfd: {error.strerror}") from None


def _map(descriptor: int, size: int, *, constant: bool) -> Bytes:
    # older kernels refuse MAP_SHARED for a memfd sealed against writing; as it cannot change, MAP_PRIVATE is the same
    mapping, flags, prot = (
        (OwnMapping, mmap.MAP_PRIVATE, mmap.PROT_READ)
        if constant
        else (mmap.mmap, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    )
    try:
        return np.frombuffer(mapping(descriptor, size, flags=flags, prot=prot), np.uint8)
    except PermissionError as error:
        raise invalid_argument(f"the memfd is not writable: {error.strerror}") from None
    except OSError as error:
        reason = f"cannot map the memory: {error.strerror}"
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, reason) from None
