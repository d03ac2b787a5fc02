"""Named files of clients that manage their caches themselves: flat, private to an identity, limited in number."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from nnhal_cache.errors import CacheError, cache_errors
from nnhal_cache.layout import identity_digest
from nnhal_cache.store import Store

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
"""Valid names. On disk they are hex."""


class NamedFiles:
    """The files of all identities in the directory of a store. They do not count towards the store's size limit.

    Every method raises CacheError if the directory is unusable, the cache is off, or the name is invalid.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._layout = store.layout

    def open(self, identity: str, name: str, access: int, limit: int) -> int:
        """Open a file, and create it if it does not exist. The caller closes the descriptor that it returns.

        `access`: os.O_RDONLY, os.O_WRONLY or os.O_RDWR; `limit`: how many files an identity may have.

        Raises:
            TooManyFilesError: the identity already has `limit` files.
        """
        path = self._path(identity, name)
        self._store.require_enabled()
        self._layout.create()
        with cache_errors(path):
            try:
                return os.open(path, access | os.O_NOFOLLOW)
            except FileNotFoundError:
                pass
        with self._layout.lock():  # so that no other process creates a file between the count and the creation
            path.parent.mkdir(0o700, exist_ok=True)
            if not path.exists() and (count := len(os.listdir(path.parent))) >= limit:
                raise TooManyFilesError(f"there are {count} cache files; expected at most {limit}")
            return os.open(path, access | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def delete(self, identity: str, name: str) -> bool:
        """Remove a file and return True, or return False if it does not exist. Open descriptors stay usable."""
        path = self._path(identity, name)
        self._store.require_enabled()
        if not self._layout.exists():
            return False
        with self._layout.lock():
            try:
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def total_bytes(self, identity: str) -> int:
        """Return the size of all files of an identity in bytes."""
        return sum(size for _, size in self.list(identity))

    def list(self, identity: str) -> Iterator[tuple[str, int]]:
        """Yield the name and size of each file of an identity."""
        folder = self._layout.files / identity_digest(identity)
        with cache_errors(folder):
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                try:
                    yield bytes.fromhex(path.name).decode(), path.stat().st_size
                except FileNotFoundError:  # deleted in the meantime
                    continue

    def _path(self, identity: str, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise BadNameError(f"invalid file name {name[:80]!r}; expected 1 to 64 letters, digits, '.', '_' and '-'")
        return self._layout.files / identity_digest(identity) / name.encode().hex()


class TooManyFilesError(CacheError):
    """An identity has the maximum number of files."""


class BadNameError(CacheError):
    """The name of a file is invalid."""
