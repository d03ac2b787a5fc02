"""Cache files that a client passes as open descriptors (hal-surface 8.1, 9.6).

A file may have any size, and its offset may be anywhere; the offset is not moved. Its contents may change at any time.
Files are therefore read once, into private memory, and truncated before they are written.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nnhal.errors import invalid_argument
from nnhal.rules.cache_token import check_token
from nnhal.types import Bytes, NumberOfCacheFiles
from nnhal_driver.mapped_memory import read_at

FILE_COUNTS = NumberOfCacheFiles(1, 1)
"""Number of files of each kind. All backends share them."""
NO_FILES = NumberOfCacheFiles(0, 0)
"""Numbers of a device that does not cache."""

_MODES = {os.O_RDONLY: "reading", os.O_WRONLY: "writing"}


class CacheMissError(Exception):
    """The files hold no model that this device can use.

    Attributes:
        reason: text for people.
        damaged: whether the files differ from what was saved, so that no device can use them.
    """

    def __init__(self, reason: str, *, damaged: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.damaged = damaged


@dataclass(frozen=True, slots=True)
class CacheFiles:
    """Cache arguments of a preparation.

    Attributes:
        token: name of the model, 32 bytes.
        model: descriptors of the model cache.
        data: descriptors of the data cache.
        read_only: accept files that are open for reading only. The HAL requires reading and writing.
        digest: digest of the only model that may be saved or loaded, see `nnhal.model_digest`; b"" allows any model.
        check_size: called with the bytes of both files before they are written; raises TooLargeError if they are too
            many.
    """

    token: bytes
    model: Sequence[int]
    data: Sequence[int]
    read_only: bool = False
    digest: bytes = b""
    check_size: Callable[[int], None] = lambda size: None

    @property
    def has_files(self) -> bool:
        """True if there is any file. Without files nothing is cached, and the token has no meaning."""
        return bool(self.model or self.data)


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """Placeholder for a cache entry that does not exist. `reason`: why not."""

    reason: str


class OpenFiles:
    """Duplicates of a client's descriptors. Close them when done.

    Raises:
        HalError: INVALID_ARGUMENT: the number of files, an access mode or the length of the token is wrong, or one file
            is both the model cache and the data cache.
    """

    def __init__(self, files: CacheFiles) -> None:
        _check_counts(files)
        self.token = files.token
        self.digest = files.digest
        self.check_size = files.check_size
        with contextlib.ExitStack() as opened:
            self.model, self.data = (
                opened.enter_context(_duplicate(descriptor, kind, files.read_only))
                for descriptor, kind in ((files.model[0], "model"), (files.data[0], "data"))
            )
            # files are open twice or under several names, but have one inode
            if os.path.samestat(os.fstat(self.model), os.fstat(self.data)):
                raise invalid_argument("the model cache and the data cache are the same file; expected two files")
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the duplicates. The client's descriptors stay open."""
        self._opened.close()


def _check_counts(files: CacheFiles) -> None:
    check_token(files.token)
    for kind, descriptors, count in (
        ("model", files.model, FILE_COUNTS.num_model_cache),
        ("data", files.data, FILE_COUNTS.num_data_cache),
    ):
        if len(descriptors) != count:
            raise invalid_argument(f"there are {len(descriptors)} {kind} cache files; this device needs {count}")


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


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheMissError(f"the cache files cannot be read: {error}") from error


def file_status(descriptor: int) -> os.stat_result:
    """Return the status of a file.

    Raises:
        CacheMissError: fstat fails.
    """
    with _reading():
        return os.fstat(descriptor)


def read_file(descriptor: int, size: int, kind: str) -> Bytes:
    """Return the first `size` bytes of a file in private memory, read-only.

    The file is not mapped: truncating a mapped file kills the process that reads it.

    Raises:
        CacheMissError: the file is shorter, or cannot be read.
        MemoryError: there is not enough memory.
    """
    with _reading():
        memory = read_at(descriptor, size)
    if memory.size < size:
        raise CacheMissError(f"the {kind} cache is truncated: {memory.size} of {size} bytes", damaged=True)
    return memory


class FileWriter:
    """Sequential writer of a file, from its beginning.

    Raises:
        OSError: the file cannot be truncated or written.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = 0
        os.ftruncate(descriptor, 0)

    def write(self, data: memoryview | bytes) -> None:
        """Append bytes."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, self.size)
            rest, self.size = rest[written:], self.size + written
