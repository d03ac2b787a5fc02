"""A client's connection: one channel, one session, the stubs, and memory that is too large for messages.

Retries are only where nothing can be done twice: a question whose answer never changes (`ask`) is asked once more when
the service could not be reached. Preparations, executions, uploads and everything else are never repeated here,
since the first attempt may have been carried out; `nnhal.warm` knows which executions may be.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, cast

import grpc
import numpy as np

from nnhal import pools, wire
from nnhal.enums import ErrorKind, ErrorStatus
from nnhal.errors import DeadObjectError, SessionLostError
from nnhal.failures import hal_error
from nnhal.local import Local, Transport, is_near
from nnhal.types import Bytes, Memory
from nnhal.v1 import (
    buffer_pb2_grpc,
    burst_pb2,
    burst_pb2_grpc,
    cache_pb2_grpc,
    device_pb2_grpc,
    execution_pb2_grpc,
    fence_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
)

OPTIONS = [
    ("grpc.max_receive_message_length", 16 * 2**20),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # a service that was started anew is soon found
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

CLOSE_S = 5.0
"""Seconds that a service has to answer the end of a session."""

T = TypeVar("T")


_Execute: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
_Stream: TypeAlias = "grpc.StreamStreamMultiCallable[bytes, bytes]"


def _path(module: ModuleType, method: str) -> str:
    """What gRPC calls a method of the one service in a file of the contract."""
    (service,) = module.DESCRIPTOR.services_by_name.values()
    return f"/{service.full_name}/{service.methods_by_name[method].name}"


def unanswered(target: str, timeout: float) -> DeadObjectError:
    """The error of a service that cannot be reached."""
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, f"{target} did not answer within {timeout:g} s")


def closed_here() -> SessionLostError:
    """The error of a call after `close`."""
    reason = "the device has been closed; connect and prepare again"
    return SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, reason, kind=ErrorKind.SESSION_LOST)


class Garbage:
    """Handles to let go with the next call. Thread safe, also from finalisers: nothing waits.

    Attributes:
        handles: those that wait; to be looked at.
    """

    def __init__(self) -> None:
        self.handles: deque[bytes] = deque()

    def add(self, handles: Iterable[bytes]) -> None:
        """Takes handles."""
        self.handles.extend(handles)

    def take(self) -> list[bytes]:
        """Gives all handles, once."""
        taken: list[bytes] = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self.handles.popleft())
        return taken


class Connection:
    """One session on one service. Thread safe. Close it when done: the service frees what it owned.

    Attributes:
        version: of the device, once somebody has asked.
    """

    def __init__(self, target: str, timeout: float, transport: Transport = "auto") -> None:
        self._channel = grpc.insecure_channel(target, options=OPTIONS)
        self.device = device_pb2_grpc.DeviceStub(self._channel)
        self.prepared_model = prepared_model_pb2_grpc.PreparedModelStub(self._channel)
        self.buffer = buffer_pb2_grpc.BufferStub(self._channel)
        self.burst = burst_pb2_grpc.BurstStub(self._channel)
        self.cache = cache_pb2_grpc.CacheStub(self._channel)
        self.execution = execution_pb2_grpc.ExecutionStub(self._channel)
        self.fence = fence_pb2_grpc.FenceStub(self._channel)
        # as bytes: see nnhal.forms
        self.execute: _Execute = self._channel.unary_unary(_path(prepared_model_pb2, "ExecuteSynchronously"))
        self.stream: _Stream = self._channel.stream_stream(_path(burst_pb2, "Stream"))
        self._memory = memory_pb2_grpc.MemoryServiceStub(self._channel)
        self._sessions = session_pb2_grpc.SessionStub(self._channel)
        # the session lives as long as this stream; only its first event need be read
        self._stream = self._sessions.Open(session_pb2.OpenRequest(), wait_for_ready=True)
        self._garbage = Garbage()
        self._lock = threading.RLock()  # a stream that has broken already calls back at once
        self._closed = False
        self._target = target
        self.version: str | None = None
        opened = self._opened(target, timeout)
        self.session = opened.session
        self.local = Local(opened, self) if transport == "auto" and is_near(target) else None
        self._keep()

    def _opened(self, target: str, timeout: float) -> session_pb2.SessionOpened:
        late = threading.Timer(timeout, self._stream.cancel)
        late.daemon = True
        late.start()
        try:
            return next(iter(self._stream)).opened
        except grpc.RpcError as error:
            self._channel.close()
            if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.CANCELLED:
                raise unanswered(target, timeout) from None
            raise hal_error(error) from error
        finally:
            late.cancel()

    def _keep(self) -> None:
        # a stream is a future too, which its type does not say
        cast("grpc.Future[Any]", self._stream).add_done_callback(self._take_up_again)

    def _take_up_again(self, ended: Any) -> None:
        """Goes on with the session when its stream breaks: the service keeps it for a short grace.

        Where that is over, or the service is another, the next call says that the session is lost.
        """
        with self._lock:
            if not self._closed and ended.code() == grpc.StatusCode.UNAVAILABLE:
                self._stream = self._sessions.Open(session_pb2.OpenRequest(session=self.session), wait_for_ready=True)
                self._keep()

    # ---- Calls --------------------------------------------------------------------------------------

    def call(self, method: Callable[..., T], request: Any) -> T:
        """Makes a unary call.

        Raises:
            HalError: the call failed.
        """
        try:
            return self.start(method, request)
        except grpc.RpcError as error:
            raise hal_error(error) from error

    def ask(self, method: Callable[..., T], request: Any) -> T:
        """Asks for what never changes; once more when the service could not be reached.

        Raises:
            HalError: the call failed.
        """
        try:
            return self.call(method, request)
        except DeadObjectError:
            return self.call(method, request)

    def start(self, method: Callable[..., T], request: Any) -> T:
        """Starts a call of any kind; what it raises is gRPC's.

        Raises:
            SessionLostError: the connection has been closed.
        """
        self.tidy()
        return method(request)

    def tidy(self) -> None:
        """Lets go of what is not needed any more; to be called before whatever goes to the service.

        Raises:
            SessionLostError: the connection has been closed.
        """
        if self._closed:
            raise closed_here()
        if self._garbage.handles:
            self._release_garbage()

    # ---- Memory -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def spilled(
        self, given: Iterable[object], *, lasting: bool = False, taken: int = 0
    ) -> Generator[wire.SendMemory, None, None]:
        """Surrounds a call: gives what makes the messages of its pools. What `spill` uploads is let go afterwards."""
        handles: list[bytes] = []
        try:
            yield pools.sender(self.spill(given, handles, lasting=lasting, taken=taken))
        finally:
            self.discard(*handles)

    def spill(
        self, given: Iterable[object], handles: list[bytes], *, lasting: bool = False, taken: int = 0
    ) -> dict[Memory, types_pb2.Memory]:
        """Uploads the pools of a message that are too large for it; gives the messages of those.

        Args:
            given: the pools, in order.
            handles: takes the handles of Memory objects; discard them when the call that uses them is done.
            lasting: the bytes may be sent again later; the service then looks for them by their digest first.
            taken: bytes of other values in the message.
        """
        too_large = pools.to_upload(given, taken, lasting=lasting)
        return {pool: pools.uploaded_memory(self._upload(pool, handles, lasting)) for pool in too_large}

    def _upload(self, pool: Memory, handles: list[bytes], lasting: bool) -> bytes:
        data = pools.contents(pool)
        sha256 = pools.digest(data) if lasting else b""
        create = memory_pb2.CreateMemoryRequest(session=self.session, size=data.size, sha256=sha256)
        created = self.call(self._memory.Create, create)
        handles.append(created.memory)
        if not created.complete:
            self.call(self._memory.Upload, pools.upload_requests(self.session, created.memory, data))
        return created.memory

    def create_memory(self, size: int) -> bytes:
        """Handle of a new Memory object."""
        return self.call(self._memory.Create, memory_pb2.CreateMemoryRequest(session=self.session, size=size)).memory

    def write_memory(self, memory: bytes, data: Bytes, start: int = 0) -> None:
        """Writes bytes into a Memory object, from byte `start` on."""
        self.call(self._memory.Upload, pools.upload_requests(self.session, memory, data, start))

    def read_memory(self, memory: bytes) -> Bytes:
        """All bytes of a Memory object."""
        data = bytearray()
        try:
            for chunk in self.start(self._memory.Read, memory_pb2.ReadRequest(session=self.session, memory=memory)):
                data += chunk.data
        except grpc.RpcError as error:
            raise hal_error(error) from error
        return np.frombuffer(data, np.uint8)

    def fetch(self, memories: Sequence[bytes]) -> dict[bytes, Bytes]:
        """All bytes of Memory objects, by handle; the objects are let go."""
        try:
            return {memory: self.read_memory(memory) for memory in memories}
        finally:
            self.discard(*memories)

    # ---- Life ---------------------------------------------------------------------------------------

    def discard(self, *handles: bytes) -> None:
        """Lets objects go with the next call. May be called by a finaliser: it makes no call itself."""
        self._garbage.add(handles)

    def alive(self, timeout: float) -> bool:
        """Whether the session goes on; waits for the service.

        Raises:
            DeadObjectError: it does not answer within `timeout` seconds.
            SessionLostError: the connection has been closed.
        """
        if self._closed:
            raise closed_here()
        try:
            nothing = session_pb2.ReleaseRequest(session=self.session)
            self._sessions.Release(nothing, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            if isinstance(hal_error(error), SessionLostError):
                return False
            raise unanswered(self._target, timeout) from error
        return True

    def _release_garbage(self) -> None:
        handles = self._garbage.take()
        if not handles:
            return
        try:
            self._sessions.Release(session_pb2.ReleaseRequest(session=self.session, handles=handles))
        except grpc.RpcError:
            # the call that comes next fails in the same way and says so; a release that is repeated does no harm
            self._garbage.add(handles)

    def close(self) -> None:
        """Ends the session. A second call does nothing; a service that is gone is no error."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self.local is not None:
            self.local.close()
        # where this fails, the service ends the session by itself: the stream goes too
        with contextlib.suppress(grpc.RpcError):
            self._sessions.Close(session_pb2.CloseRequest(session=self.session), timeout=CLOSE_S)
        self._stream.cancel()
        self._channel.close()
