"""A store that fsspec can reach, for example S3."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from nnhal_service.peers.cache_share.stores import StoredObject

_VERSIONS = re.compile("etag|md5|sha|crc|hash|checksum|generation|version|mtime|modif|created|blob_id", re.IGNORECASE)
"""Names under which file systems tell something that changes with a file. Each has names of its own."""
_DEPTH = 8
"""Folders below each other in which objects are found."""
_Details: TypeAlias = Mapping[str, Any]


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
        """Yield all objects. For a store without folders, this takes a request for each thousand of them."""
        root = self._path(folder).rstrip("/")
        own = type(self._files)._find if self._files.async_impl else type(self._files).find
        if own in (AsyncFileSystem._find, AbstractFileSystem.find):
            found = self._walk(root, _DEPTH)
        else:
            found = iter(self._files.find(root, detail=True).items())
        for path, details in found:
            yield _stored(path[len(self._path("")) :], details)

    def _walk(self, folder: str, depth: int) -> Iterator[tuple[str, _Details]]:
        """Yield what is below a folder. fsspec's own walk leaves out the folders that cannot be read."""
        for details in self._files.ls(folder, detail=True):
            path = details["name"].rstrip("/")
            if details["type"] != "directory":
                yield path, details
            elif path != folder and depth:
                with suppress(FileNotFoundError):  # it has just been removed
                    yield from self._walk(path, depth - 1)

    def describe(self, name: str) -> StoredObject:
        """Return what the store tells of an object."""
        return _stored(name, self._files.info(self._path(name), **self._bounded))

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


def _stored(name: str, details: _Details) -> StoredObject:
    modified = next((details[key] for key in ("LastModified", "mtime", "created") if key in details), None)
    at = modified if isinstance(modified, int | float) else modified.timestamp() if modified else 0.0
    version = " ".join(str(details[key]) for key in sorted(details) if _VERSIONS.search(key))
    size = int(details.get("size") or 0)
    return StoredObject(name, size, at, f"{size} {version}")
