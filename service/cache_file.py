"""Cache files: objects of a session that stand for the open files that the HAL hands to a driver."""

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from driver.caching.files import CacheFiles
from nnhal.errors import HalError, invalid_argument
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import types_pb2
from service.sessions import Session

MODE_NAMES = {os.O_RDONLY: "reading", os.O_WRONLY: "writing", os.O_RDWR: "reading and writing"}

_MOST_FILES = 33
"""Of one kind; one more than the HAL ever has, so that the driver still sees that there are too many."""


class CacheFile:
    """An open cache file of a session. Access mode and offset are those of its descriptor.

    Args:
        descriptor: becomes this object's.
        named: it is in the cache directory; else the client's own, shared on the same machine.
    """

    def __init__(self, descriptor: int, *, named: bool) -> None:
        self._descriptor = descriptor
        self.named = named
        self._access = access_of(descriptor)
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Lets the descriptor go; a second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._descriptor)

    @contextmanager
    def held(self) -> Iterator[int]:
        """The descriptor, which is not closed meanwhile.

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: it has been released.
        """
        with self._lock:
            if self._closed:
                raise unknown("the cache file has been released")
            yield self._descriptor

    def read(self, length: int) -> bytes:
        """Bytes from the offset, which moves on; fewer at the end."""
        self._demand(os.O_WRONLY, "reading")
        with self.held() as descriptor:
            return os.read(descriptor, length)

    def write(self, data: bytes) -> None:
        """Writes all of the bytes at the offset, which moves on."""
        self._demand(os.O_RDONLY, "writing")
        with self.held() as descriptor:
            while data:
                data = data[os.write(descriptor, data) :]

    def seek(self, offset: int) -> None:
        """Moves the offset, also beyond the end."""
        with self.held() as descriptor:
            os.lseek(descriptor, offset, os.SEEK_SET)

    def truncate(self, size: int) -> None:
        """Cuts the file off, or extends it with zeros."""
        self._demand(os.O_RDONLY, "writing")
        with self.held() as descriptor:
            os.ftruncate(descriptor, size)

    @property
    def deleted(self) -> bool:
        """Whether it has no name any more."""
        with self.held() as descriptor:
            return os.fstat(descriptor).st_nlink == 0

    def growth(self, length: int) -> int:
        """By how many bytes a write of `length` at the offset makes the file larger."""
        with self.held() as descriptor:
            end = os.lseek(descriptor, 0, os.SEEK_CUR) + length
            return max(0, end - os.fstat(descriptor).st_size)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        with self.held() as descriptor:
            return os.fstat(descriptor).st_size

    def _demand(self, without: int, what: str) -> None:
        if self._access == without:
            raise invalid_argument(f"the cache file is open for {MODE_NAMES[self._access]} only, not for {what}")


def access_of(descriptor: int) -> int:
    """The access mode of a descriptor: os.O_RDONLY, os.O_WRONLY or os.O_RDWR."""
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE


@contextmanager
def cache_files(session: Session, message: types_pb2.CompilationCache) -> Iterator[CacheFiles]:
    """The files behind a message of the form FILES, for a driver: descriptors that are open within the context.

    Raises:
        HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: one is no cache file of this session.
    """
    with ExitStack() as opened:

        def duplicates(handles: Sequence[bytes]) -> list[int]:
            found = []
            for handle in handles[:_MOST_FILES]:
                with session.get(handle, CacheFile).held() as descriptor:
                    found.append(os.dup(descriptor))
                opened.callback(os.close, found[-1])
            return found

        yield CacheFiles(message.token, duplicates(message.model_cache), duplicates(message.data_cache))


def unknown(reason: str) -> HalError:
    """The error of a file that is not there."""
    return HalError(ErrorStatus.INVALID_ARGUMENT, reason, kind=ErrorKind.UNKNOWN_HANDLE)
