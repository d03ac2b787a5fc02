"""The open files that a client hands over for caching, as the HAL has it (hal-surface 8.1, 9.6).

They may have any size and stand at any offset, which is never moved; what is in them may change at any time. So they
are read once, into memory of our own, and truncated before they are written.
"""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from driver.caching.miss import CacheMissError
from nnhal.errors import invalid_argument
from nnhal.types import CACHE_TOKEN_BYTES, Bytes, NumberOfCacheFiles

NEEDED = NumberOfCacheFiles(1, 1)
"""One file of each kind, which any number of backends share."""

_MODES = {os.O_RDONLY: "reading", os.O_WRONLY: "writing"}


@dataclass(frozen=True, slots=True)
class CacheFiles:
    """Cache arguments of a preparation.

    Attributes:
        token: 32 bytes; names the model.
        model: descriptors of the model cache.
        data: descriptors of the data cache.
        read_only: reading is enough. The HAL demands files that are open for reading and writing.
    """

    token: bytes
    model: Sequence[int]
    data: Sequence[int]
    read_only: bool = False

    @property
    def given(self) -> bool:
        """Whether there are any files; without them nothing is cached, and the token means nothing."""
        return bool(self.model or self.data)


@dataclass(frozen=True, slots=True)
class Missing:
    """What stands for files that whoever keeps them does not have. `reason`: why not."""

    reason: str


class OpenFiles:
    """Duplicates of a client's descriptors. Close them when done.

    Raises:
        HalError: INVALID_ARGUMENT: a wrong number of files, access mode or length of the token.
    """

    def __init__(self, files: CacheFiles) -> None:
        _check_counts(files)
        self.token = files.token
        with contextlib.ExitStack() as opened:
            self.model, self.data = (
                opened.enter_context(_duplicate(descriptor, kind, files.read_only))
                for descriptor, kind in ((files.model[0], "model"), (files.data[0], "data"))
            )
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Closes the duplicates; the client's descriptors stay open."""
        self._opened.close()


def check_token(token: bytes) -> None:
    """Refuses a token of another length.

    Raises:
        HalError: INVALID_ARGUMENT.
    """
    if len(token) != CACHE_TOKEN_BYTES:
        raise invalid_argument(f"the cache token has {len(token)} bytes, must have {CACHE_TOKEN_BYTES}")


def _check_counts(files: CacheFiles) -> None:
    check_token(files.token)
    for kind, given, needed in (
        ("model", files.model, NEEDED.num_model_cache),
        ("data", files.data, NEEDED.num_data_cache),
    ):
        if len(given) != needed:
            raise invalid_argument(f"there are {len(given)} {kind} cache files; this device needs {needed}")


@contextlib.contextmanager
def _duplicate(descriptor: int, kind: str, read_only: bool) -> Iterator[int]:
    try:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if mode != os.O_RDWR and not (read_only and mode == os.O_RDONLY):
            raise invalid_argument(
                f"the {kind} cache file is open for {_MODES[mode]} only, must be for reading and writing"
            )
        duplicate = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
    except (OSError, OverflowError, ValueError) as error:
        raise invalid_argument(f"the {kind} cache file cannot be used: {error}") from None
    try:
        yield duplicate
    finally:
        os.close(duplicate)


def size_of(descriptor: int) -> int:
    """Bytes in a file.

    Raises:
        OSError: it cannot be asked.
    """
    return os.fstat(descriptor).st_size


def read(descriptor: int, size: int, kind: str) -> Bytes:
    """The first `size` bytes of a file in memory of our own, which begins with a page. Not writable.

    Nothing is mapped: whoever truncated a mapped file would kill the process.

    Raises:
        CacheMissError: the file is shorter.
        OSError: it cannot be read.
        MemoryError: there is no memory for it.
    """
    memory = np.empty(size + mmap.PAGESIZE, np.uint8)
    start = -memory.ctypes.data % mmap.PAGESIZE
    wanted = memory[start : start + size]
    done = 0
    while done < size:
        count = os.preadv(descriptor, [wanted[done:].data], done)
        if count == 0:
            raise CacheMissError(f"the {kind} cache is truncated: {done} of {size} bytes", damaged=True)
        done += count
    memory.flags.writeable = wanted.flags.writeable = False
    return wanted


class FileWriter:
    """Writes a file from its beginning, in order.

    Raises:
        OSError: it cannot be truncated, or written.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = 0
        os.ftruncate(descriptor, 0)

    def write(self, data: memoryview | bytes) -> None:
        """Appends bytes."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, self.size)
            rest, self.size = rest[written:], self.size + written
