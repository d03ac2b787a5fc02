"""Cache files: objects of a session for the open files that the HAL passes to a driver."""

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from nnhal.errors import HalError, invalid_argument
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_cache.file_io import write_all
from nnhal_driver.model_cache.files import CacheFiles
from nnhal_service.identity.digests import scoped_digest
from nnhal_service.sessions.session import Session

MODE_NAMES = {os.O_RDONLY: "reading", os.O_WRONLY: "writing", os.O_RDWR: "reading and writing"}

_MAX_FILES = 33
"""Number of files of one kind that are opened: one more than the HAL allows, so that the driver rejects them."""


class CacheFile:
    """Open cache file of a session. Access mode and offset are those of its descriptor.

    Args:
        descriptor: the open file; this object becomes its owner.
        named: whether the file is in the cache directory. Otherwise a client on the same machine shares it.
    """

    def __init__(self, descriptor: int, *, named: bool) -> None:
        self._descriptor = descriptor
        self.named = named
        self._access = access_mode(descriptor)
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Close the descriptor. A second call does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._descriptor)

    @contextmanager
    def open_descriptor(self) -> Iterator[int]:
        """Yield the descriptor, which stays open within the context.

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: the file has been released.
        """
        with self._lock:
            if self._closed:
                raise unknown_file("the cache file has been released")
            yield self._descriptor

    def read(self, length: int) -> bytes:
        """Return bytes from the offset, which moves on; fewer at the end of the file."""
        self._reject_mode(os.O_WRONLY, "reading")
        with self.open_descriptor() as descriptor:
            return os.read(descriptor, length)

    def write(self, data: bytes) -> None:
        """Write all bytes at the offset, which moves on."""
        self._reject_mode(os.O_RDONLY, "writing")
        with self.open_descriptor() as descriptor:
            write_all(descriptor, data)

    def seek(self, offset: int) -> None:
        """Set the offset, which may lie past the end of the file."""
        with self.open_descriptor() as descriptor:
            os.lseek(descriptor, offset, os.SEEK_SET)

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros."""
        self._reject_mode(os.O_RDONLY, "writing")
        with self.open_descriptor() as descriptor:
            os.ftruncate(descriptor, size)

    @property
    def is_deleted(self) -> bool:
        """The file has been deleted, and has no name any more."""
        with self.open_descriptor() as descriptor:
            return os.fstat(descriptor).st_nlink == 0

    def growth(self, length: int) -> int:
        """Return by how many bytes a write of `length` bytes at the offset would extend the file."""
        with self.open_descriptor() as descriptor:
            end = os.lseek(descriptor, 0, os.SEEK_CUR) + length
            return max(0, end - os.fstat(descriptor).st_size)

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        with self.open_descriptor() as descriptor:
            return os.fstat(descriptor).st_size

    def _reject_mode(self, mode: int, purpose: str) -> None:
        if self._access == mode:
            raise invalid_argument(f"the cache file is open for {MODE_NAMES[self._access]} only, not for {purpose}")


def access_mode(descriptor: int) -> int:
    """Return the access mode of a descriptor: os.O_RDONLY, os.O_WRONLY or os.O_RDWR."""
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE


@contextmanager
def open_cache_files(session: Session, message: types_pb2.CompilationCache) -> Iterator[CacheFiles]:
    """Yield the files in a message of the form FILES as a driver takes them, open within the context.

    Raises:
        HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: a handle is not a cache file of this session.
    """
    with ExitStack() as open_files:

        def duplicate(handles: Sequence[bytes]) -> list[int]:
            descriptors = []
            for handle in handles[:_MAX_FILES]:
                with session.get(handle, CacheFile).open_descriptor() as descriptor:
                    descriptors.append(os.dup(descriptor))
                open_files.callback(os.close, descriptors[-1])
            return descriptors

        fds = duplicate(message.model_cache), duplicate(message.data_cache)
        yield CacheFiles(message.token, *fds, digest=scoped_digest(session.identity, message.model_digest))


def unknown_file(reason: str) -> HalError:
    """Return the error of a file that does not exist."""
    return HalError(ErrorStatus.INVALID_ARGUMENT, reason, kind=ErrorKind.UNKNOWN_HANDLE)
