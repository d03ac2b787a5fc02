"""Cache files of a check, which are opened and changed through the contract's Cache service."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nnhal.v1 import cache_pb2
from nnhal_tools.conformance.device.target import Target

READ_ONLY, WRITE_ONLY, READ_WRITE = (
    cache_pb2.ACCESS_MODE_READ_ONLY,
    cache_pb2.ACCESS_MODE_WRITE_ONLY,
    cache_pb2.ACCESS_MODE_READ_WRITE,
)

CHUNK_BYTES = 500_000
"""Bytes that one call reads or writes."""


@dataclass(frozen=True)
class CacheHandles:
    """Handles of open cache files, in the form that a preparation takes."""

    model: Sequence[bytes]
    data: Sequence[bytes]

    @property
    def all(self) -> list[bytes]:
        """The handles of both kinds."""
        return [*self.model, *self.data]


class CacheFolder:
    """Cache files with a unique name prefix, which are deleted at the end of the context.

    Every method raises NotServiceSpecific if a call fails.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._prefix = f"conformance-{secrets.token_hex(8)}-"
        self._created: set[str] = set()

    def for_session(self, target: Target) -> "CacheFolder":
        """Return the same files, for use on another session."""
        folder = CacheFolder(target)
        folder._prefix, folder._created = self._prefix, self._created
        return folder

    def __enter__(self) -> "CacheFolder":
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._created:
            self._target.require("Cache.Delete", name=self._prefix + name)

    def open(self, name: str, mode: int = READ_WRITE) -> bytes:
        """Open a file at offset 0 and return its handle. A missing file is created empty."""
        return bytes(self._open(name, mode).file)

    def _open(self, name: str, mode: int) -> cache_pb2.OpenCacheFileResponse:
        response: cache_pb2.OpenCacheFileResponse = self._target.require(
            "Cache.Open", name=self._prefix + name, mode=mode
        )
        self._created.add(name)
        return response

    def size(self, name: str) -> int:
        """Return the size of a file, in bytes."""
        response = self._open(name, READ_ONLY)
        self._target.release(response.file)
        return int(response.size)

    @contextmanager
    def open_files(
        self, model: Sequence[str], data: Sequence[str], modes: dict[str, int] | None = None
    ) -> Iterator[CacheHandles]:
        """Open model and data files within the context. `modes`: the access modes by name, READ_WRITE by default."""
        modes = modes or {}
        handles = CacheHandles(
            *([self.open(name, modes.get(name, READ_WRITE)) for name in names] for names in (model, data))
        )
        try:
            yield handles
        finally:
            if handles.all:
                self._target.release(*handles.all)

    def read(self, handle: bytes, length: int) -> bytes:
        """Read bytes from the offset, which advances. Return fewer bytes at the end of the file."""
        data = b""
        while len(data) < length:
            count = min(length - len(data), CHUNK_BYTES)
            chunk = self._target.require("Cache.Read", file=handle, length=count).data
            if not chunk:
                break
            data += chunk
        return data

    def write(self, handle: bytes, data: bytes) -> None:
        """Write bytes at the offset, which advances."""
        for start in range(0, len(data), CHUNK_BYTES):
            self._target.require("Cache.Write", file=handle, data=data[start : start + CHUNK_BYTES])

    def seek(self, handle: bytes, offset: int) -> None:
        """Move the offset."""
        self._target.require("Cache.Seek", file=handle, offset=offset)

    def read_file(self, name: str) -> bytes:
        """Return the contents of a file."""
        with self.open_files([name], []) as files:
            return self.read(files.model[0], self.size(name))

    def write_file(self, name: str, data: bytes, offset: int = 0) -> None:
        """Write bytes into a file, and leave the rest of it unchanged."""
        with self.open_files([name], []) as files:
            self.seek(files.model[0], offset)
            self.write(files.model[0], data)

    def truncate(self, name: str, size: int) -> None:
        """Set the size of a file."""
        with self.open_files([name], []) as files:
            self._target.require("Cache.Truncate", file=files.model[0], size=size)

    def flip_bit(self, name: str, bit: int) -> None:
        """Flip one bit of a file, counted from its beginning."""
        with self.open_files([name], []) as files:
            self.seek(files.model[0], bit // 8)
            (byte,) = self.read(files.model[0], 1)
            self.seek(files.model[0], bit // 8)
            self.write(files.model[0], bytes([byte ^ 1 << bit % 8]))
