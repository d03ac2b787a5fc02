"""Memory objects: bytes that clients upload, read, and use as pools of models and requests."""

import hashlib
import threading
import weakref

import numpy as np

from nnhal.errors import invalid_argument
from nnhal.types import PROT_READ, PROT_WRITE, Bytes, Memory, UnsetUnion
from nnhal.v1 import types_pb2
from nnhal_service.sessions.session import Session


class MemoryObject:
    """Bytes of a client. With a digest it becomes complete and read-only once the uploaded bytes match the digest.

    Attributes:
        sha256: the expected digest; empty for memory that stays writable.
        complete: whether the memory can be used as a pool.
    """

    def __init__(self, buffer: Bytes, sha256: bytes = b"") -> None:
        self.buffer = buffer
        self.sha256 = sha256
        self.complete = not sha256
        # a concurrent upload must not change bytes whose digest has just been checked
        self._lock = threading.Lock()

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset.

        Raises:
            HalError: INVALID_ARGUMENT: they lie outside of the memory, or the memory is read-only.
        """
        if offset < 0 or offset + len(data) > self.buffer.size:
            raise invalid_argument(f"bytes {offset}..{offset + len(data)} lie outside a memory of {self.buffer.size}")
        with self._lock:
            if self.sha256 and self.complete:
                raise invalid_argument("this memory is complete and read-only")
            self.buffer[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def seal(self, written: int) -> None:
        """Check the digest after an upload of some bytes, and make the memory read-only.

        Raises:
            HalError: INVALID_ARGUMENT: bytes are missing or wrong.
        """
        with self._lock:
            if self.complete:
                return
            if written != self.buffer.size:
                raise invalid_argument(f"{written} bytes were uploaded into a memory of {self.buffer.size}")
            if hashlib.sha256(self.buffer.data).digest() != self.sha256:
                raise invalid_argument("the uploaded bytes do not match the sha256 digest of the memory")
            self.buffer.flags.writeable = False
            self.complete = True

    def window(self, offset: int, length: int | None, prot: int) -> Memory:
        """Return a pool over a part of the memory, without a copy.

        Raises:
            HalError: INVALID_ARGUMENT: the upload has not been completed.
        """
        if not self.complete:
            raise invalid_argument("the memory is not complete: upload its bytes first")
        return Memory(self.buffer, offset, length, prot & PROT_READ if self.sha256 else prot)


class DigestTable:
    """Complete buffers by session and SHA-256, while a handle or a prepared model references them. Thread safe.

    A client that knows a digest must not learn whether another client has the bytes, let alone get them.
    """

    def __init__(self) -> None:
        self._buffers: weakref.WeakValueDictionary[tuple[bytes, bytes], Bytes] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def find(self, session: bytes, sha256: bytes, size: int) -> MemoryObject | None:
        """Return a new, complete Memory object over the buffer with a digest; None if there is no such buffer."""
        with self._lock:
            buffer = self._buffers.get((session, sha256))
        if buffer is None or buffer.size != size:
            return None
        memory = MemoryObject(buffer, sha256)
        memory.complete = True
        return memory

    def add(self, session: bytes, memory: MemoryObject) -> None:
        """Add the buffer of a complete memory."""
        with self._lock:
            self._buffers[(session, memory.sha256)] = memory.buffer


def read_memory(session: Session, message: types_pb2.Memory) -> Memory | UnsetUnion:
    """Return the pool that a Memory message describes.

    Raises:
        HalError: INVALID_ARGUMENT: the handle or number is unknown, or the memory is not complete.
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
