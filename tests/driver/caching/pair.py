"""A pair of cache files in memory, and the keys and tokens of these tests."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from driver.caching.files import CacheFiles, OpenFiles

KEY = bytes(range(32))
TOKEN = bytes(range(100, 132))


class Pair:
    """A model cache and a data cache."""

    def __init__(self) -> None:
        self.model = os.memfd_create("model")
        self.data = os.memfd_create("data")

    def files(self, token: bytes = TOKEN) -> CacheFiles:
        """As a client hands them over."""
        return CacheFiles(token, [self.model], [self.data])

    @contextmanager
    def opened(self, token: bytes = TOKEN) -> Iterator[OpenFiles]:
        """As the driver has them."""
        files = OpenFiles(self.files(token))
        try:
            yield files
        finally:
            files.close()

    def close(self) -> None:
        """Lets them go."""
        os.close(self.model)
        os.close(self.data)


def contents(descriptor: int) -> bytes:
    """All bytes of a file."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def rewrite(descriptor: int, change: Callable[[bytearray], object]) -> None:
    """Changes what a file holds. `change` may return new contents."""
    held = bytearray(contents(descriptor))
    changed = change(held)
    if isinstance(changed, (bytes, bytearray)):
        held = bytearray(changed)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, held, 0)


def flip(descriptor: int, at: int, mask: int = 1) -> None:
    """Flips bits of one byte."""
    (byte,) = os.pread(descriptor, 1, at)
    os.pwrite(descriptor, bytes([byte ^ mask]), at)
