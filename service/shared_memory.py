"""What a client on the same machine shares: memory and files, by numbers that it chooses.

Memory is a memfd that can neither shrink nor grow any more: reading what has been cut off would end this process. The
client can write to it at any time, so whoever reads values that matter copies them first (`driver.graph.array_over`);
only where the memfd is sealed against writing is it mapped read-only, and trusted to stay as it is.
"""

import fcntl
import mmap
import os
import stat
import threading
from dataclasses import dataclass

import numpy as np

from nnhal.errors import HalError, invalid_argument
from nnhal.types import PROT_READ, PROT_WRITE, Bytes, ErrorStatus, Memory
from service.limits import Limits

_FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def map_memory(descriptor: int, limits: Limits) -> Memory:
    """Maps a memfd; the descriptor stays the caller's.

    Raises:
        HalError: INVALID_ARGUMENT: it is no memfd, not sealed, of huge pages, or empty; RESOURCE_EXHAUSTED_*: it is too
            large.
    """
    seals = _seals(descriptor)
    if seals & _FIXED != _FIXED:
        raise invalid_argument("the memfd is not sealed with F_SEAL_SHRINK and F_SEAL_GROW")
    if os.fstatvfs(descriptor).f_bsize != mmap.PAGESIZE:
        # without a free huge page, reading one would end this process
        raise invalid_argument("the memfd is made of huge pages; only ordinary ones are taken")
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise invalid_argument("the memfd is empty")
    limits.hold("pool_bytes", size, "the memory has")
    constant = bool(seals & fcntl.F_SEAL_WRITE)
    return Memory(_mapped(descriptor, size, constant=constant), prot=PROT_READ if constant else PROT_READ | PROT_WRITE)


def _seals(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as error:
        raise invalid_argument(f"the descriptor is no memfd: {error.strerror}") from None


def _mapped(descriptor: int, size: int, *, constant: bool) -> Bytes:
    # older kernels refuse to share what is sealed against writing; it cannot change, so a private mapping is the same
    flags, prot = (
        (mmap.MAP_PRIVATE, mmap.PROT_READ) if constant else (mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    )
    try:
        return np.frombuffer(mmap.mmap(descriptor, size, flags=flags, prot=prot), np.uint8)
    except PermissionError as error:
        raise invalid_argument(f"the memfd cannot be written to: {error.strerror}") from None
    except OSError as error:
        reason = f"the memory cannot be mapped: {error.strerror}"
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, reason) from None


@dataclass(frozen=True)
class _File:
    """A file of a client. Closed when it is let go."""

    descriptor: int


class SharedTable:
    """What one session shares. Thread safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._things: dict[int, Memory | _File] = {}
        self._lock = threading.Lock()
        self._closed = False

    def add_memory(self, number: int, memory: Memory) -> None:
        """Takes a memory.

        Raises:
            HalError: INVALID_ARGUMENT: the number is taken; RESOURCE_EXHAUSTED_TRANSIENT: limit shared.
        """
        self._add(number, memory)

    def add_file(self, number: int, descriptor: int) -> None:
        """Takes a duplicate of the descriptor of a regular file.

        Raises:
            HalError: as `add_memory`; INVALID_ARGUMENT: it is no regular file.
        """
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise invalid_argument("the descriptor is no regular file")
        file = _File(os.dup(descriptor))
        try:
            self._add(number, file)
        except HalError:
            os.close(file.descriptor)
            raise

    def _add(self, number: int, thing: Memory | _File) -> None:
        with self._lock:
            if self._closed:
                raise invalid_argument("the session has ended")
            if number in self._things:
                raise invalid_argument(f"number {number} is taken")
            self._limits.hold("shared", len(self._things) + 1, "the session would have")
            self._things[number] = thing

    def memory(self, number: int) -> Memory:
        """The memory behind a number.

        Raises:
            HalError: INVALID_ARGUMENT: there is none.
        """
        thing = self._things.get(number)
        if not isinstance(thing, Memory):
            raise invalid_argument(f"the session shares no memory {number}")
        return thing

    def descriptor(self, number: int) -> int:
        """A duplicate of the descriptor of a file; the caller closes it.

        Raises:
            HalError: INVALID_ARGUMENT: there is none.
        """
        with self._lock:  # a descriptor that is closed meanwhile could be another file
            thing = self._things.get(number)
            if not isinstance(thing, _File):
                raise invalid_argument(f"the session shares no file {number}")
            return os.dup(thing.descriptor)

    def drop(self, number: int) -> None:
        """Lets a memory or file go; requests that refer to it keep it. Unknown numbers do no harm."""
        with self._lock:
            thing = self._things.pop(number, None)
        if isinstance(thing, _File):
            os.close(thing.descriptor)

    def close(self) -> None:
        """Lets everything go, and takes no more."""
        with self._lock:
            self._closed = True
            numbers = list(self._things)
        for number in numbers:
            self.drop(number)
