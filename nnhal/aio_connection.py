"""The asyncio client's connection: as `nnhal.connection`, whose rule on retries holds here too. It belongs to the event
loop that opened it.

Whoever cancels a task that waits here cancels the call on the service.
"""

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, TypeVar

import grpc
import grpc.aio
import numpy as np

from nnhal import pools, wire
from nnhal.aio_local import Local
from nnhal.connection import CLOSE_S, OPTIONS, Garbage, closed_here, unanswered
from nnhal.errors import DeadObjectError, SessionLostError
from nnhal.failures import hal_error
from nnhal.local import Transport, is_near
from nnhal.types import Bytes, Memory
from nnhal.v1 import (
    buffer_pb2_grpc,
    burst_pb2_grpc,
    cache_pb2_grpc,
    device_pb2_grpc,
    execution_pb2_grpc,
    fence_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
)

T = TypeVar("T")


class Connection:
    """One session on one service. `open` it; close it when done: the service frees what it owned.

    Attributes:
        version: of the device, once somebody has asked.
    """

    def __init__(self, target: str, transport: Transport = "auto") -> None:
        self._target = target
        self._transport = transport
        self.local: Local | None = None
        self._channel = grpc.aio.insecure_channel(target, options=OPTIONS)
        self.device = device_pb2_grpc.DeviceStub(self._channel)
        self.prepared_model = prepared_model_pb2_grpc.PreparedModelStub(self._channel)
        self.buffer = buffer_pb2_grpc.BufferStub(self._channel)
        self.burst = burst_pb2_grpc.BurstStub(self._channel)
        self.cache = cache_pb2_grpc.CacheStub(self._channel)
        self.execution = execution_pb2_grpc.ExecutionStub(self._channel)
        self.fence = fence_pb2_grpc.FenceStub(self._channel)
        self._memory = memory_pb2_grpc.MemoryServiceStub(self._channel)
        self._sessions = session_pb2_grpc.SessionStub(self._channel)
        # the session lives as long as this stream; only its first event need be read
        self._stream = self._sessions.Open(session_pb2.OpenRequest(), wait_for_ready=True)
        self._garbage = Garbage()
        self._again: asyncio.Future[None] | None = None
        self._closed = False
        self.session = b""
        self.version: str | None = None

    async def open(self, timeout: float) -> None:
        """Opens the session.

        Raises:
            HalError: the service does not answer within `timeout` seconds, or refuses.
        """
        try:
            with _translated():
                async with asyncio.timeout(timeout):
                    event = await self._stream.read()
        except BaseException as error:
            self._stream.cancel()
            await self._channel.close()
            if isinstance(error, TimeoutError):
                raise unanswered(self._target, timeout) from None
            raise
        assert isinstance(event, session_pb2.SessionEvent)
        self.session = event.opened.session
        if self._transport == "auto" and is_near(self._target):
            self.local = Local(event.opened, self)
        self._stream.add_done_callback(self._broken)

    def _broken(self, ended: Any) -> None:
        if not self._closed:
            self._again = asyncio.ensure_future(self._take_up_again(ended))

    async def _take_up_again(self, ended: Any) -> None:
        """As in `nnhal.connection`: the session goes on when its stream breaks."""
        if await ended.code() == grpc.StatusCode.UNAVAILABLE and not self._closed:
            self._stream = self._sessions.Open(session_pb2.OpenRequest(session=self.session), wait_for_ready=True)
            self._stream.add_done_callback(self._broken)

    # ---- Calls --------------------------------------------------------------------------------------

    async def call(self, method: Callable[..., Awaitable[T]], request: Any) -> T:
        """Makes a unary call.

        Raises:
            HalError: the call failed.
        """
        await self.tidy()
        with _translated():
            return await method(request)

    async def ask(self, method: Callable[..., Awaitable[T]], request: Any) -> T:
        """Asks for what never changes; once more when the service could not be reached.

        Raises:
            HalError: the call failed.
        """
        try:
            return await self.call(method, request)
        except DeadObjectError:
            return await self.call(method, request)

    async def stream(self, method: Callable[..., AsyncIterable[T]], request: Any) -> AsyncIterator[T]:
        """Makes a call that answers with a stream.

        Raises:
            HalError: the call failed.
        """
        await self.tidy()
        with _translated():
            async for message in method(request):
                yield message

    async def tidy(self) -> None:
        """Lets go of what is not needed any more; to be called before whatever goes to the service.

        Raises:
            SessionLostError: the connection has been closed.
        """
        if self._closed:
            raise closed_here()
        if not (handles := self._garbage.take()):
            return
        try:
            await self._sessions.Release(session_pb2.ReleaseRequest(session=self.session, handles=handles))
        except grpc.RpcError:
            # the call that comes next fails in the same way and says so; a release that is repeated does no harm
            self._garbage.add(handles)
        except BaseException:
            self._garbage.add(handles)
            raise

    # ---- Memory -------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def spilled(
        self, given: Iterable[object], *, lasting: bool = False, taken: int = 0
    ) -> AsyncGenerator[wire.SendMemory, None]:
        """As in `nnhal.connection.Connection`."""
        handles: list[bytes] = []
        try:
            yield pools.sender(await self.spill(given, handles, lasting=lasting, taken=taken))
        finally:
            self.discard(*handles)

    async def spill(
        self, given: Iterable[object], handles: list[bytes], *, lasting: bool = False, taken: int = 0
    ) -> dict[Memory, types_pb2.Memory]:
        """As in `nnhal.connection.Connection`."""
        too_large = pools.to_upload(given, taken, lasting=lasting)
        return {pool: pools.uploaded_memory(await self._upload(pool, handles, lasting)) for pool in too_large}

    async def _upload(self, pool: Memory, handles: list[bytes], lasting: bool) -> bytes:
        data = pools.contents(pool)
        # a digest of hundreds of megabytes takes too long for an event loop
        sha256 = await asyncio.to_thread(pools.digest, data) if lasting else b""
        create = memory_pb2.CreateMemoryRequest(session=self.session, size=data.size, sha256=sha256)
        created = await self.call(self._memory.Create, create)
        handles.append(created.memory)
        if not created.complete:
            await self.call(self._memory.Upload, pools.upload_requests(self.session, created.memory, data))
        return created.memory

    async def create_memory(self, size: int) -> bytes:
        """Handle of a new Memory object."""
        create = memory_pb2.CreateMemoryRequest(session=self.session, size=size)
        return (await self.call(self._memory.Create, create)).memory

    async def write_memory(self, memory: bytes, data: Bytes, start: int = 0) -> None:
        """Writes bytes into a Memory object, from byte `start` on."""
        await self.call(self._memory.Upload, pools.upload_requests(self.session, memory, data, start))

    async def read_memory(self, memory: bytes) -> Bytes:
        """All bytes of a Memory object."""
        data = bytearray()
        async for chunk in self.stream(self._memory.Read, memory_pb2.ReadRequest(session=self.session, memory=memory)):
            data += chunk.data
        return np.frombuffer(data, np.uint8)

    async def fetch(self, memories: Sequence[bytes]) -> dict[bytes, Bytes]:
        """As in `nnhal.connection.Connection`."""
        try:
            return {memory: await self.read_memory(memory) for memory in memories}
        finally:
            self.discard(*memories)

    # ---- Life ---------------------------------------------------------------------------------------

    def discard(self, *handles: bytes) -> None:
        """Lets objects go with the next call. May be called by a finaliser: it makes no call itself."""
        self._garbage.add(handles)

    async def alive(self, timeout: float) -> bool:
        """As in `nnhal.connection.Connection`."""
        if self._closed:
            raise closed_here()
        try:
            nothing = session_pb2.ReleaseRequest(session=self.session)
            await self._sessions.Release(nothing, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            if isinstance(hal_error(error), SessionLostError):
                return False
            raise unanswered(self._target, timeout) from error
        return True

    async def close(self) -> None:
        """Ends the session. A second call does nothing; a service that is gone is no error."""
        if self._closed:
            return
        self._closed = True
        if self.local is not None:
            self.local.close()
        try:
            # where this fails, the service ends the session by itself: the stream goes too
            with contextlib.suppress(grpc.RpcError):
                await self._sessions.Close(session_pb2.CloseRequest(session=self.session), timeout=CLOSE_S)
        finally:
            self._stream.cancel()
            await self._channel.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Errors of gRPC become the project's."""
    try:
        yield
    except grpc.RpcError as error:
        raise hal_error(error) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # nobody cancelled this task: gRPC does so to its calls when their channel is closed
        raise closed_here() from None
