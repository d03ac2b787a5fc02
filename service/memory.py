"""MemoryService: memory that clients fill and read, and use as pools of models and requests."""

import hashlib
import threading
import weakref
from collections.abc import Iterator

import grpc
import numpy as np

from nnhal.errors import HalError, invalid_argument
from nnhal.types import PROT_READ, PROT_WRITE, Bytes, ErrorStatus, Memory, UnsetUnion
from nnhal.v1 import memory_pb2, memory_pb2_grpc, types_pb2
from service.limits import Limits, MemoryQuota
from service.patience import Patience
from service.rpc import answering
from service.sessions import Session, Sessions

READ_CHUNK_BYTES = 2**20


class MemoryObject:
    """Bytes of a client. With a digest it becomes read-only once all of them are there and right."""

    def __init__(self, buffer: Bytes, sha256: bytes = b"") -> None:
        self.buffer = buffer
        self.sha256 = sha256
        self.complete = not sha256
        # two uploads at once: none may change bytes whose digest the other one has just found right
        self._lock = threading.Lock()

    def write(self, offset: int, data: bytes) -> None:
        """Fills a region.

        Raises:
            HalError: INVALID_ARGUMENT: it lies outside, or the memory is read-only.
        """
        if offset < 0 or offset + len(data) > self.buffer.size:
            raise invalid_argument(f"bytes {offset}..{offset + len(data)} lie outside a memory of {self.buffer.size}")
        with self._lock:
            if self.sha256 and self.complete:
                raise invalid_argument("this memory is complete and read-only")
            self.buffer[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def seal(self, written: int) -> None:
        """Checks the digest after an upload.

        Raises:
            HalError: INVALID_ARGUMENT: bytes are missing or wrong.
        """
        with self._lock:
            if self.complete:
                return
            if written != self.buffer.size:
                raise invalid_argument(f"{written} bytes were uploaded into a memory of {self.buffer.size}")
            if hashlib.sha256(self.buffer.data).digest() != self.sha256:
                raise invalid_argument("the bytes uploaded do not have the digest that was announced")
            self.buffer.flags.writeable = False
            self.complete = True

    def window(self, offset: int, length: int | None, prot: int) -> Memory:
        """A pool over part of it; nothing is copied.

        Raises:
            HalError: INVALID_ARGUMENT: the upload has not been completed.
        """
        if not self.complete:
            raise invalid_argument("the memory is not complete: upload its bytes first")
        return Memory(self.buffer, offset, length, prot & PROT_READ if self.sha256 else prot)


class Digests:
    """Complete buffers by (identity, SHA-256), as long as anything holds them: a handle, or a prepared model."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[tuple[str, bytes], Bytes] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def find(self, identity: str, sha256: bytes, size: int) -> MemoryObject | None:
        """A complete memory with these bytes."""
        with self._lock:
            buffer = self._known.get((identity, sha256))
        if buffer is None or buffer.size != size:
            return None
        found = MemoryObject(buffer, sha256)
        found.complete = True
        return found

    def add(self, identity: str, memory: MemoryObject) -> None:
        """Remembers the buffer of a complete memory."""
        with self._lock:
            self._known[(identity, memory.sha256)] = memory.buffer


def read_memory(session: Session, message: types_pb2.Memory) -> Memory | UnsetUnion:
    """The pool behind a Memory message.

    Raises:
        HalError: INVALID_ARGUMENT: unknown handle, memory not complete.
    """
    match message.WhichOneof("memory"):
        case "inline":
            return Memory.of(message.inline)
        case "mapped":
            mapped = message.mapped
            length = mapped.length if mapped.HasField("length") else None
            prot = mapped.prot if mapped.HasField("prot") else PROT_READ | PROT_WRITE
            return session.get(mapped.memory, MemoryObject).window(mapped.offset, length, prot)
        case "shared":
            return session.shared.memory(message.shared)
        case _:
            return UnsetUnion()


class MemoryServicer(memory_pb2_grpc.MemoryServiceServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, limits: Limits, quota: MemoryQuota, patience: Patience) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota
        self._patience = patience
        self._digests = Digests()

    @answering
    def Create(
        self, request: memory_pb2.CreateMemoryRequest, context: grpc.ServicerContext
    ) -> memory_pb2.CreateMemoryResponse:
        """Makes a Memory object, or finds the bytes by their digest."""
        session = self._sessions.get(request.session)
        if request.size <= 0:
            raise invalid_argument(f"size is {request.size}; it must be > 0")
        self._limits.hold("pool_bytes", request.size, "the memory would have")
        if len(request.sha256) not in (0, 32):
            raise invalid_argument(f"sha256 has {len(request.sha256)} bytes; it must have 32 or none")
        memory = self._digests.find(session.identity, request.sha256, request.size) if request.sha256 else None
        if memory is None:
            memory = MemoryObject(_allocated(request.size), request.sha256)
            self._quota.charge(session.identity, memory.buffer)
        return memory_pb2.CreateMemoryResponse(
            memory=session.add(memory), complete=memory.complete and bool(request.sha256)
        )

    @answering
    def Upload(
        self, requests: Iterator[memory_pb2.UploadRequest], context: grpc.ServicerContext
    ) -> memory_pb2.UploadResponse:
        """Writes chunks, then checks the digest."""
        chunks = self._patience.receive(requests, context)
        first = next(chunks, None)
        if first is None:
            raise invalid_argument("the upload is empty")
        session = self._sessions.get(first.session)
        memory = session.get(first.memory, MemoryObject)
        memory.write(first.offset, first.data)
        written = len(first.data)
        for chunk in chunks:
            memory.write(chunk.offset, chunk.data)
            written += len(chunk.data)
        memory.seal(written)
        if memory.sha256:
            self._digests.add(session.identity, memory)
        return memory_pb2.UploadResponse(written=written)

    @answering
    def Read(self, request: memory_pb2.ReadRequest, context: grpc.ServicerContext) -> Iterator[memory_pb2.ReadResponse]:
        """Gives a window in chunks."""
        buffer = self._sessions.get(request.session).get(request.memory, MemoryObject).buffer
        length = request.length if request.HasField("length") else buffer.size - request.offset
        if request.offset < 0 or length < 0 or request.offset + length > buffer.size:
            raise invalid_argument(f"{length} bytes from {request.offset} lie outside a memory of {buffer.size}")
        window = buffer[request.offset : request.offset + length]
        starts = range(0, window.size, READ_CHUNK_BYTES)
        chunks = (memory_pb2.ReadResponse(data=window[i : i + READ_CHUNK_BYTES].tobytes()) for i in starts)
        return self._patience.send(chunks, context)


def _allocated(size: int) -> Bytes:
    try:
        return np.zeros(size, np.uint8)
    except (MemoryError, ValueError):  # numpy refuses impossible sizes with a ValueError
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"no memory for {size} bytes") from None
