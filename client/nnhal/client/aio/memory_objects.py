"""Memory objects of a session: uploads of large pools, and transfers of outputs."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nnhal import wire
from nnhal.client.aio.concurrency import run_blocking
from nnhal.client.core.memory import (
    contiguous_bytes,
    digest,
    memory_object_message,
    pool_encoder,
    pools_to_upload,
    upload_requests,
)
from nnhal.types import Bytes, Memory
from nnhal.v1 import memory_pb2, types_pb2


class MemoryObjects:
    """Base of connections that transfers Memory objects."""

    session: bytes
    _memory_service: Any

    async def call(self, method: Callable[..., Any], request: Any) -> Any:
        """Make a unary call."""
        raise NotImplementedError

    def stream(self, method: Callable[..., Any], request: Any) -> AsyncIterator[Any]:
        """Make a call that answers with a stream."""
        raise NotImplementedError

    def discard(self, *handles: bytes) -> None:
        """Release objects with the next call."""
        raise NotImplementedError

    async def flush_releases(self) -> None:
        """Release discarded objects. Called before anything is sent to the service."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def uploaded(
        self, pools: Iterable[object], *, deduplicate: bool = False, reserved: int = 0
    ) -> AsyncIterator[wire.SendMemory]:
        """Upload large pools for a call that is made within, and release them afterwards.

        The arguments are those of `upload_large`.

        Yields:
            a function that encodes the pools.
        """
        handles: list[bytes] = []
        try:
            yield pool_encoder(await self.upload_large(pools, handles, deduplicate=deduplicate, reserved=reserved))
        finally:
            self.discard(*handles)

    @contextlib.asynccontextmanager
    async def uploaded_bytes(self, data: Bytes) -> AsyncIterator[bytes]:
        """Upload bytes for a call that is made within. Yield the handle of their Memory object, which has a digest."""
        handles: list[bytes] = []
        try:
            yield await self._upload(Memory.of(data), handles, deduplicate=True)
        finally:
            self.discard(*handles)

    async def upload_large(
        self, pools: Iterable[object], handles: list[bytes], *, deduplicate: bool = False, reserved: int = 0
    ) -> dict[Memory, types_pb2.Memory]:
        """Upload the pools of a message that are too large for it, and return their messages.

        Args:
            pools: the pools, in order.
            handles: takes the handles of the Memory objects. Discard them after the call that uses them.
            deduplicate: whether the bytes may be sent again later. The service then looks for their digest first.
            reserved: size of other values in the message, in bytes.
        """
        large = pools_to_upload(pools, reserved, deduplicate=deduplicate)
        return {pool: memory_object_message(await self._upload(pool, handles, deduplicate)) for pool in large}

    async def _upload(self, pool: Memory, handles: list[bytes], deduplicate: bool) -> bytes:
        data = contiguous_bytes(pool)
        # hashing hundreds of megabytes takes too long for an event loop
        sha256 = await run_blocking(digest, data) if deduplicate else b""
        created = await self._create(data.size, sha256)
        handles.append(created.memory)
        if not created.complete:
            await self.write_memory(created.memory, data)
        return created.memory

    async def create_memory(self, size: int) -> bytes:
        """Create a Memory object and return its handle."""
        return (await self._create(size)).memory

    async def _create(self, size: int, sha256: bytes = b"") -> memory_pb2.CreateMemoryResponse:
        request = memory_pb2.CreateMemoryRequest(session=self.session, size=size, sha256=sha256)
        created: memory_pb2.CreateMemoryResponse = await self.call(self._memory_service.Create, request)
        return created

    async def write_memory(self, memory: bytes, data: Bytes, start: int = 0) -> None:
        """Write bytes into a Memory object, from byte `start` on."""
        await self.call(self._memory_service.Upload, upload_requests(self.session, memory, data, start))

    async def read_memory(self, memory: bytes) -> Bytes:
        """Return all bytes of a Memory object."""
        data = bytearray()
        request = memory_pb2.ReadRequest(session=self.session, memory=memory)
        async for chunk in self.stream(self._memory_service.Read, request):
            data += chunk.data
        return np.frombuffer(data, np.uint8)

    async def take_memories(self, memories: Sequence[bytes]) -> dict[bytes, Bytes]:
        """Return all bytes of Memory objects, by handle, and release the objects."""
        try:
            return {memory: await self.read_memory(memory) for memory in memories}
        finally:
            self.discard(*memories)
