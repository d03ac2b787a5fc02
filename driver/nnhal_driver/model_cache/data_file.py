"""Data cache, read into memory by a thread while the caller parses the model cache.

The same thread then computes the digest while an engine loads its model. Reading and hashing each take one call, which
does not hold the GIL. In pieces, the thread would wait for the GIL after each piece.
"""

import hashlib
import threading
from concurrent.futures import Future

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
        self._memory: Future[Bytes] = Future()
        self._thread: threading.Thread | None = None
        if size > _INLINE_BYTES:
            self._thread = threading.Thread(target=self._work, name="nnhal-data-cache", daemon=True)
            self._thread.start()
        else:
            self._work()

    @property
    def memory(self) -> Bytes:
        """The bytes, read-only. Blocks until they are read.

        Raises:
            CacheMissError: the file is too short, or cannot be read.
            MemoryError: there is not enough memory.
        """
        return self._memory.result()

    def finish(self) -> None:
        """Wait until the file is read and checked.

        Raises:
            CacheMissError: the file differs from what was saved, or cannot be read.
            MemoryError: there is not enough memory.
        """
        if self._thread is not None:
            self._thread.join()
        self._memory.result()
        if self._digest != self._expected_digest:
            raise CacheMissError("the data cache was changed: its digest is wrong", damaged=True)

    def _work(self) -> None:
        try:
            memory = read_file(self._descriptor, self._size, "data")
        except BaseException as error:
            self._memory.set_exception(error)
            return
        self._memory.set_result(memory)
        if self._expected_digest is not None:
            self._digest = hashlib.sha256(memory.data).digest()
