"""A store that fsspec can reach, for example S3."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import fsspec

from nnhal_service.peers.cache_share.stores import StoredObject


class FsspecStore:
    """A store behind a URL. Its options come from the configuration of fsspec, or of the store.

    Args:
        timeout_s: seconds that each request may take, for file systems that are asynchronous.

    Raises:
        Exception: the store cannot be opened, for any reason that its package has.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        # listings in memory would show what is long gone
        self._files, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        self._root = root.rstrip("/")
        self._bounded: dict[str, Any] = {"timeout": timeout_s} if self._files.async_impl else {}

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return some bytes of an object."""
        content: bytes = self._files.cat_file(self._path(name), start=start, end=end, **self._bounded)
        return content

    def create(self, name: str, value: bytes) -> bool:
        """Write an object, unless there is one."""
        try:
            self._write(name, value, "create")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, value: bytes) -> None:
        """Write an object, in place of one that exists."""
        self._write(name, value, "overwrite")

    def touch(self, name: str, value: bytes) -> None:
        """Write an object again: most stores have no other way to change its time."""
        self._write(name, value, "overwrite")

    def modified_at(self, name: str) -> float:
        """Return when an object was written."""
        modified: float = self._files.modified(self._path(name)).timestamp()
        return modified

    def list(self, folder: str) -> Iterator[StoredObject]:
        """Yield all objects. This takes a request for each thousand of them."""
        for path, info in self._files.find(self._path(folder), detail=True).items():
            name = path[len(self._path("")) :]
            modified = next((info[key] for key in ("LastModified", "mtime", "created") if key in info), None)
            at = modified if isinstance(modified, int | float) else modified.timestamp() if modified else 0.0
            yield StoredObject(name, int(info["size"]), at)

    def delete(self, name: str) -> None:
        """Remove an object."""
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write(self, name: str, value: bytes, mode: str) -> None:
        path = self._path(name)
        if not self._files.async_impl:  # object stores have no folders
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, value, mode=mode, **self._bounded)
