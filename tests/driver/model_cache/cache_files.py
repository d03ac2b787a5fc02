"""Cache files in memory, and the key and token of the tests."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnhal_driver.model_cache.files import CacheFiles, OpenFiles

KEY = bytes(range(32))
TOKEN = bytes(range(100, 132))


class Pair:
    """Model cache file and data cache file in memory."""

    def __init__(self) -> None:
        self.model = os.memfd_create("model")
        self.data = os.memfd_create("data")

    def files(self, token: bytes = TOKEN) -> CacheFiles:
        """Return the files as a client passes them."""
        return CacheFiles(token, [self.model], [self.data])

    @contextmanager
    def opened(self, token: bytes = TOKEN) -> Iterator[OpenFiles]:
        """Open the files as the driver does."""
        files = OpenFiles(self.files(token))
        try:
            yield files
        finally:
            files.close()

    def close(self) -> None:
        """Close the files."""
        os.close(self.model)
        os.close(self.data)


def contents(descriptor: int) -> bytes:
    """Return all bytes of a file."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def rewrite(descriptor: int, change: Callable[[bytearray], object]) -> None:
    """Change the contents of a file. `change` edits them or returns new ones."""
    data = bytearray(contents(descriptor))
    changed = change(data)
    if isinstance(changed, (bytes, bytearray)):
        data = bytearray(changed)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, data, 0)


def flip(descriptor: int, offset: int, mask: int = 1) -> None:
    """Flip bits of one byte."""
    (byte,) = os.pread(descriptor, 1, offset)
    os.pwrite(descriptor, bytes([byte ^ mask]), offset)
