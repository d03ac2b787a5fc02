"""Data cache, read into memory by a thread while the caller parses the model cache.

The same thread then computes the digest while an engine loads its model. Reading and hashing each take one call, which
does not hold the GIL. In pieces, the thread would wait for the GIL after each piece.
"""

import hashlib
import threading

from nnhal.types import Bytes
from nnhal_driver.model_cache.files import CacheMissError, file_status, read_file

_INLINE_BYTES = 256 * 1024
"""Size up to which reading and hashing take less time than starting a thread."""


def check_size(descriptor: int, size: int) -> None:
    """Check the size of a data cache.

    Raises:
        CacheMissError: the file has another size.
    """
    if (actual := file_status(descriptor).st_size) != size:
        state = "truncated" if actual < size else "extended"
        raise CacheMissError(f"the data cache is {state}: it has {actual} bytes, not {size}", damaged=True)


class DataFile:
    """A data cache in memory. If `finish` fails, nothing that was derived from it may be used.

    Args:
        descriptor: of the file. It must stay open until `finish` has returned.
        size: expected size in bytes.
        digest: expected SHA-256, or None to skip this check.

    Raises:
        CacheMissError: the file has another size.
    """

    def __init__(self, descriptor: int, size: int, digest: bytes | None) -> None:
        check_size(descriptor, size)
        self._descriptor = descriptor
        self._size = size
        self._expected_digest = digest
        self._digest: bytes | None = None
        self._memory: Bytes | None = None
        self._error: Exception | None = None
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None
        if size > _INLINE_BYTES:
            self._reading.acquire()
            self._thread = threading.Thread(target=self._work, name="nnhal-data-cache", daemon=True)
            self._thread.start()
        else:
            self._read()
            self._hash()

    @property
    def memory(self) -> Bytes:
        """The bytes, read-only. Blocks until they are read.

        Raises:
            CacheMissError: the file is too short, or cannot be read.
            MemoryError: there is not enough memory.
        """
        if self._memory is None:
            with self._reading:  # the thread holds it while it reads
                pass
        if self._error is not None:
            raise self._error
        assert self._memory is not None
        return self._memory

    def finish(self) -> None:
        """Wait until the file is read and checked.

        Raises:
            CacheMissError: the file differs from what was saved, or cannot be read.
            MemoryError: there is not enough memory.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        if self._digest != self._expected_digest:
            raise CacheMissError("the data cache was changed: its digest is wrong", damaged=True)

    def _work(self) -> None:
        try:
            self._read()
        finally:
            self._reading.release()
        self._hash()

    def _read(self) -> None:
        try:
            self._memory = read_file(self._descriptor, self._size, "data")
        except (CacheMissError, MemoryError) as error:
            self._error = error

    def _hash(self) -> None:
        if self._expected_digest is not None and self._memory is not None:
            self._digest = hashlib.sha256(self._memory.data).digest()
