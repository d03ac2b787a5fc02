"""MemoryService: creation, upload and download of Memory objects."""

from collections.abc import Iterator

import grpc

from nnhal.errors import HalError, invalid_argument
from nnhal.types import Bytes, ErrorStatus
from nnhal.v1 import memory_pb2, memory_pb2_grpc
from nnhal_driver import mapped_memory
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.stall_watchdog import StallWatchdog
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.sessions.memory_objects import DigestTable, MemoryObject

READ_CHUNK_BYTES = 2**20


class MemoryServicer(ServicerBase, memory_pb2_grpc.MemoryServiceServicer):
    """Servicer of MemoryService. Uploads and reads wait for their client, so they run on a pool of their own."""

    def __init__(self, parts: ServiceParts, watchdog: StallWatchdog) -> None:
        super().__init__(parts)
        self._watchdog = watchdog
        self._digests = DigestTable()

    @handler()
    def Create(
        self, request: memory_pb2.CreateMemoryRequest, context: grpc.ServicerContext
    ) -> memory_pb2.CreateMemoryResponse:
        """Create a Memory object, or find its bytes by their digest."""
        session = self._sessions.get(request.session, context)
        if request.size <= 0:
            raise invalid_argument(f"size is {request.size}; it must be > 0")
        self._limits.require("pool_bytes", request.size, "the memory would have")
        if len(request.sha256) not in (0, 32):
            raise invalid_argument(f"sha256 has {len(request.sha256)} bytes; expected 32 or none")
        memory = self._digests.find(session.token, request.sha256, request.size) if request.sha256 else None
        if memory is None:
            reservation = self._quota.reserve_object(session, request.size)
            memory = self._quota.count_object(session, lambda: MemoryObject(_allocate(request.size), request.sha256))
            reservation.keep_for(memory.buffer)
        return memory_pb2.CreateMemoryResponse(
            memory=session.add(memory), complete=memory.complete and bool(request.sha256)
        )

    @handler(pool="transfers")
    def Upload(
        self, requests: Iterator[memory_pb2.UploadRequest], context: grpc.ServicerContext
    ) -> memory_pb2.UploadResponse:
        """Write chunks to a Memory object, then check its digest."""
        metered = MeteredCall("upload", context=context)
        chunks = self._watchdog.receive(requests, context, lambda chunk: len(chunk.data))
        first = next(chunks, None)
        if first is None:
            raise invalid_argument("the upload is empty")
        session = self._sessions.get(first.session, context)
        with self._calls.start(metered, session):
            memory = session.get(first.memory, MemoryObject)
            memory.write(first.offset, first.data)
            metered.received = written = len(first.data)
            for chunk in chunks:
                memory.write(chunk.offset, chunk.data)
                metered.received = written = written + len(chunk.data)
            memory.seal(written)
            if memory.sha256:
                self._digests.add(session.token, memory)
        return memory_pb2.UploadResponse(written=written)

    @handler(pool="transfers")
    def Read(self, request: memory_pb2.ReadRequest, context: grpc.ServicerContext) -> Iterator[memory_pb2.ReadResponse]:
        """Return a part of a Memory object in chunks."""
        metered = MeteredCall("download", context=context)
        session = self._sessions.get(request.session, context)
        buffer = session.get(request.memory, MemoryObject).buffer
        length = request.length if request.HasField("length") else buffer.size - request.offset
        if request.offset < 0 or length < 0 or request.offset + length > buffer.size:
            raise invalid_argument(f"{length} bytes from {request.offset} lie outside a memory of {buffer.size}")
        window = buffer[request.offset : request.offset + length]
        starts = range(0, window.size, READ_CHUNK_BYTES)
        chunks = (memory_pb2.ReadResponse(data=window[i : i + READ_CHUNK_BYTES].tobytes()) for i in starts)
        return self._watchdog.send(_metered(chunks, self._calls.start(metered, session)), context)


def _metered(chunks: Iterator[memory_pb2.ReadResponse], metered: MeteredCall) -> Iterator[memory_pb2.ReadResponse]:
    """Yield the chunks of a download, and count it at the end, also if the client cancels it."""
    with metered:
        for chunk in chunks:
            yield chunk
            metered.sent += len(chunk.data)


def _allocate(size: int) -> Bytes:
    try:
        return mapped_memory.allocate(size)
    except MemoryError:
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"cannot allocate {size} bytes") from None
