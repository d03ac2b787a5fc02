"""Named files of clients, for those who keep their caches themselves: flat, private to an identity, bounded."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from cache.errors import CacheError, explaining
from cache.layout import digest
from cache.store import Store

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
"""What names look like. They are hex on disk."""


class NamedFiles:
    """The files of all identities in the directory of a store. Their bytes are not the store's.

    Every method raises CacheError where the directory cannot be used, the cache is off, or the name is none.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._layout = store.layout

    def open(self, identity: str, name: str, access: int, limit: int) -> int:
        """Opens a file, which is made if it is not there.

        Args:
            access: os.O_RDONLY, os.O_WRONLY or os.O_RDWR.
            limit: how many files an identity may have.

        Returns:
            The descriptor, the caller's to close.

        Raises:
            TooManyFilesError: it would be one more than `limit`.
        """
        path = self._path(identity, name)
        self._store.hold_on()
        self._layout.make()
        with explaining(path):
            try:
                return os.open(path, access | os.O_NOFOLLOW)
            except FileNotFoundError:
                pass
        with self._layout.locked():  # so that nobody else makes one while we count
            path.parent.mkdir(0o700, exist_ok=True)
            if not path.exists() and (count := len(os.listdir(path.parent))) >= limit:
                raise TooManyFilesError(f"there are {count} cache files; there may be {limit}")
            return os.open(path, access | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def delete(self, identity: str, name: str) -> bool:
        """Removes a file; those who have it open keep it. Gives whether there was one."""
        path = self._path(identity, name)
        self._store.hold_on()
        if not self._layout.exists():
            return False
        with self._layout.locked():
            try:
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def used(self, identity: str) -> int:
        """Bytes of all files of an identity."""
        return sum(size for _, size in self.list(identity))

    def list(self, identity: str) -> Iterator[tuple[str, int]]:
        """Names and sizes."""
        folder = self._layout.files / digest(identity)
        with explaining(folder):
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                try:
                    yield bytes.fromhex(path.name).decode(), path.stat().st_size
                except FileNotFoundError:  # deleted meanwhile
                    continue

    def _path(self, identity: str, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise BadNameError(f"{name[:80]!r} is no name: 1 to 64 letters, digits, '.', '_' and '-' are wanted")
        return self._layout.files / digest(identity) / name.encode().hex()


class TooManyFilesError(CacheError):
    """An identity has as many files as it may."""


class BadNameError(CacheError):
    """A name of a file is malformed."""
