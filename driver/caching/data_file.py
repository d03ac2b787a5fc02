"""The data cache, read into memory of our own by a thread beside the one that looks at the model cache.

The same thread then works out the digest, in one call, while an engine loads its model: neither reading nor hashing
holds the GIL. In pieces it would wait for the GIL after each.
"""

import hashlib
import threading

from driver.caching.files import read, size_of
from driver.caching.miss import CacheMissError
from nnhal.types import Bytes

_INLINE = 256 * 1024
"""Bytes up to which reading and hashing take less time than a thread for it."""


class DataFile:
    """A data cache in memory. Nothing may be made of it that outlives a failing `finish`.

    Args:
        descriptor: of the file; it must stay open until `finish` or `close` has returned.
        size: bytes that it must have.
        digest: SHA-256 that they must have; None: it is not checked.

    Raises:
        CacheMissError: it has another size.
        OSError: it cannot be read.
    """

    def __init__(self, descriptor: int, size: int, digest: bytes | None) -> None:
        if (actual := size_of(descriptor)) != size:
            what = "truncated" if actual < size else "extended"
            raise CacheMissError(f"the data cache is {what}: it has {actual} bytes, not {size}", damaged=True)
        self._descriptor = descriptor
        self._size = size
        self._digest = digest
        self._found: bytes | None = None
        self._memory: Bytes | None = None
        self._error: Exception | None = None
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None
        if size > _INLINE:
            self._reading.acquire()
            self._thread = threading.Thread(target=self._work, name="nnhal-data-cache", daemon=True)
            self._thread.start()
        else:
            self._read()
            self._hash()

    @property
    def memory(self) -> Bytes:
        """The bytes, as soon as they are read. Not writable.

        Raises:
            CacheMissError: there are fewer.
            OSError: they cannot be read.
            MemoryError: there is no memory for them.
        """
        if self._memory is None:
            with self._reading:  # until then the thread has it
                pass
        if self._error is not None:
            raise self._error
        assert self._memory is not None
        return self._memory

    def finish(self) -> None:
        """Waits until all has been read and checked.

        Raises:
            CacheMissError: it is not what was saved.
            OSError, MemoryError: as `memory`.
        """
        self.close()
        if self._error is not None:
            raise self._error
        if self._found != self._digest:
            raise CacheMissError("the data cache was changed: its digest is wrong", damaged=True)

    def close(self) -> None:
        """Waits for the thread, whatever it finds."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            self._read()
        finally:
            self._reading.release()
        self._hash()

    def _read(self) -> None:
        try:
            self._memory = read(self._descriptor, self._size, "data")
        except (CacheMissError, OSError, MemoryError) as error:
            self._error = error

    def _hash(self) -> None:
        if self._digest is not None and self._memory is not None:
            self._found = hashlib.sha256(self._memory.data).digest()
