"""Cache files of one check: named files of the client, opened and changed through the contract's Cache service."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import cache_pb2, cache_pb2_grpc
from tools.conformance.check import NotServiceSpecific
from tools.conformance.target import Target, called

READ_ONLY, WRITE_ONLY, READ_WRITE = (
    cache_pb2.ACCESS_MODE_READ_ONLY,
    cache_pb2.ACCESS_MODE_WRITE_ONLY,
    cache_pb2.ACCESS_MODE_READ_WRITE,
)

CHUNK_BYTES = 500_000
"""What one call reads or writes."""


@dataclass(frozen=True)
class Opened:
    """Handles of open cache files, as a preparation takes them."""

    model: Sequence[bytes]
    data: Sequence[bytes]

    @property
    def all(self) -> list[bytes]:
        """Of both kinds."""
        return [*self.model, *self.data]


class CacheFolder:
    """Files with names that nobody else has. Every method raises NotServiceSpecific where a call fails."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._prefix = f"conformance-{secrets.token_hex(8)}-"
        self._stub = cache_pb2_grpc.CacheStub(target.channel)
        self._made: set[str] = set()

    def of(self, target: Target) -> "CacheFolder":
        """The same files, for another session."""
        folder = CacheFolder(target)
        folder._prefix, folder._made = self._prefix, self._made
        return folder

    def __enter__(self) -> "CacheFolder":
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._made:
            self._call(
                "Delete",
                cache_pb2.DeleteCacheFileRequest(session=self._target.session, name=self._prefix + name),
            )

    def open(self, name: str, mode: int = READ_WRITE) -> bytes:
        """Handle of a file at offset 0; it is made, and empty, where it is not there."""
        return bytes(self._open(name, mode).file)

    def _open(self, name: str, mode: int) -> cache_pb2.OpenCacheFileResponse:
        request = cache_pb2.OpenCacheFileRequest(
            session=self._target.session,
            name=self._prefix + name,
            mode=mode,  # type: ignore[arg-type]
        )
        response: cache_pb2.OpenCacheFileResponse = self._call("Open", request)
        self._made.add(name)
        return response

    def size(self, name: str) -> int:
        """Bytes in a file."""
        response = self._open(name, READ_ONLY)
        self._target.release(response.file)
        return int(response.size)

    @contextmanager
    def opened(
        self, model: Sequence[str], data: Sequence[str], modes: dict[str, int] | None = None
    ) -> Iterator[Opened]:
        """Handles of files, within the context. `modes`: of files that are not open for reading and writing."""
        modes = modes or {}
        handles = Opened(*([self.open(name, modes.get(name, READ_WRITE)) for name in names] for names in (model, data)))
        try:
            yield handles
        finally:
            if handles.all:
                self._target.release(*handles.all)

    def read(self, handle: bytes, length: int) -> bytes:
        """Bytes from the offset, which moves on; fewer at the end."""
        data = b""
        while len(data) < length:
            request = cache_pb2.ReadCacheFileRequest(
                session=self._target.session, file=handle, length=min(length - len(data), CHUNK_BYTES)
            )
            got = self._call("Read", request).data
            if not got:
                break
            data += got
        return data

    def write(self, handle: bytes, data: bytes) -> None:
        """Writes at the offset, which moves on."""
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            request = cache_pb2.WriteCacheFileRequest(session=self._target.session, file=handle, data=chunk)
            self._call("Write", request)

    def seek(self, handle: bytes, offset: int) -> None:
        """Moves the offset."""
        self._call("Seek", cache_pb2.SeekCacheFileRequest(session=self._target.session, file=handle, offset=offset))

    def content(self, name: str) -> bytes:
        """All of a file."""
        with self.opened([name], []) as files:
            return self.read(files.model[0], self.size(name))

    def put(self, name: str, data: bytes, offset: int = 0) -> None:
        """Writes into a file, and leaves the rest of it as it is."""
        with self.opened([name], []) as files:
            self.seek(files.model[0], offset)
            self.write(files.model[0], data)

    def truncate(self, name: str, size: int) -> None:
        """Sets the size of a file."""
        with self.opened([name], []) as files:
            request = cache_pb2.TruncateCacheFileRequest(session=self._target.session, file=files.model[0], size=size)
            self._call("Truncate", request)

    def flip(self, name: str, bit: int) -> None:
        """Turns over one bit of a file, counted from its beginning."""
        with self.opened([name], []) as files:
            self.seek(files.model[0], bit // 8)
            (byte,) = self.read(files.model[0], 1)
            self.seek(files.model[0], bit // 8)
            self.write(files.model[0], bytes([byte ^ 1 << bit % 8]))

    def _call(self, method: str, request: Any) -> Any:
        answer, response = called(getattr(self._stub, method), request)
        if answer.status != ErrorStatus.NONE:
            raise NotServiceSpecific(f"Cache.{method}: {answer}")
        return response
