"""A client's connection: one channel, one session, the stubs, and memory that is too large for messages."""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
import numpy as np

from nnhal.enums import ErrorStatus
from nnhal.errors import DeadObjectError
from nnhal.failures import hal_error
from nnhal.types import Bytes, Memory
from nnhal.v1 import (
    device_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
)

INLINE_BYTES = 64 * 1024
"""Pools up to this size travel inside the message that uses them; larger ones become Memory objects."""

CHUNK_BYTES = 2**20

_OPTIONS = [
    ("grpc.max_receive_message_length", 16 * 2**20),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]

T = TypeVar("T")


class Connection:
    """One session on one service. Thread safe. Close it when done: the service frees what it owned."""

    def __init__(self, target: str, timeout: float) -> None:
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self.device = device_pb2_grpc.DeviceStub(self._channel)
        self.prepared_model = prepared_model_pb2_grpc.PreparedModelStub(self._channel)
        self._memory = memory_pb2_grpc.MemoryServiceStub(self._channel)
        self._sessions = session_pb2_grpc.SessionStub(self._channel)
        self._garbage: list[bytes] = []
        self._lock = threading.Lock()
        self._closed = False
        try:
            grpc.channel_ready_future(self._channel).result(timeout)
            # the session lives as long as this stream; nothing more need be read from it
            self._stream = self._sessions.Open(session_pb2.OpenRequest())
            self.session = next(iter(self._stream)).opened.session
        except grpc.FutureTimeoutError:
            self._channel.close()
            reason = f"{target} did not answer within {timeout:g} s"
            raise DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, reason) from None
        except grpc.RpcError as error:
            self._channel.close()
            raise hal_error(error) from error

    def call(self, method: Callable[..., T], request: Any) -> T:
        """Makes a unary call.

        Raises:
            HalError: the call failed.
        """
        self._release_garbage()
        try:
            return method(request)
        except grpc.RpcError as error:
            raise hal_error(error) from error

    # ---- Memory -------------------------------------------------------------------------------------

    def send_memory(self, pool: Memory, handles: list[bytes], *, lasting: bool) -> types_pb2.Memory:
        """A message for a pool: its bytes, or a Memory object that holds them.

        Args:
            handles: takes the handle of the Memory object; release it when the call that uses it is done.
            lasting: the bytes may be sent again later; the service then looks for them by their digest first.
        """
        if pool.size <= INLINE_BYTES:
            return types_pb2.Memory(inline=pool.view.tobytes())
        data = np.ascontiguousarray(pool.view)
        digest = hashlib.sha256(data.data).digest() if lasting else b""
        create = memory_pb2.CreateMemoryRequest(session=self.session, size=data.size, sha256=digest)
        created = self.call(self._memory.Create, create)
        handles.append(created.memory)
        if not created.complete:
            self.call(self._memory.Upload, self._chunks(created.memory, data))
        return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=created.memory))

    def _chunks(self, memory: bytes, data: Bytes) -> Iterator[memory_pb2.UploadRequest]:
        for offset in range(0, data.size, CHUNK_BYTES):
            yield memory_pb2.UploadRequest(
                session=self.session,
                memory=memory,
                offset=offset,
                data=data[offset : offset + CHUNK_BYTES].tobytes(),
            )

    def read_memory(self, memory: bytes) -> Bytes:
        """All bytes of a Memory object, which is then released."""
        chunks = self._memory.Read(memory_pb2.ReadRequest(session=self.session, memory=memory))
        try:
            data = b"".join(chunk.data for chunk in chunks)
        except grpc.RpcError as error:
            raise hal_error(error) from error
        self.discard(memory)
        return np.frombuffer(bytearray(data), np.uint8)

    # ---- Life ---------------------------------------------------------------------------------------

    def discard(self, *handles: bytes) -> None:
        """Lets objects go with the next call. May be called by a finaliser: it makes no call itself."""
        self._garbage.extend(handles)

    def _release_garbage(self) -> None:
        if not self._garbage:
            return
        with self._lock:
            handles, self._garbage[:] = list(self._garbage), []
        try:
            self._sessions.Release(session_pb2.ReleaseRequest(session=self.session, handles=handles))
        except grpc.RpcError as error:
            raise hal_error(error) from error

    def close(self) -> None:
        """Ends the session. A second call does nothing; a service that is gone is no error."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        # where this fails, the service ends the session by itself: the stream goes too
        with contextlib.suppress(grpc.RpcError):
            self._sessions.Close(session_pb2.CloseRequest(session=self.session), timeout=5)
        self._stream.cancel()
        self._channel.close()
