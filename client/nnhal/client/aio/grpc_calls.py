"""Calls of gRPC as asyncio makes them. `nnhal.client.sync.grpc_calls` has the same names for threads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import grpc
import grpc.aio

from nnhal.client.aio.memory_objects import MemoryObjects
from nnhal.client.core.burst import TransportClosed, burst_ended_error
from nnhal.client.core.cache import is_session_lost
from nnhal.client.core.prepared_model import missing_notify_error
from nnhal.client.core.rpc_errors import hal_error
from nnhal.client.core.session import connection_replaced_error
from nnhal.errors import HalError
from nnhal.v1 import device_pb2, session_pb2

T = TypeVar("T")

CHANNEL_CLOSED = grpc.aio.UsageError
"""Error of a call on a channel that another task has closed."""


class GrpcCalls(MemoryObjects):
    """Base of connections: the part of their calls that is different for tasks and for threads."""

    _channel: grpc.aio.Channel
    _stream: Any
    _closed: bool
    member: str
    burst_stream: Callable[..., Any]
    _resuming: asyncio.Future[None] | None = None
    _reader: asyncio.Future[None] | None = None

    async def _resume(self, ended: Any, code: grpc.StatusCode) -> None:
        """Resume the session after its stream has ended."""
        raise NotImplementedError

    async def _read_members(self, stream: Any) -> None:
        """Read which other services there are, until the stream ends."""
        raise NotImplementedError

    async def _first_event(self, stream: Any, timeout: float) -> session_pb2.SessionEvent | None:
        """Return the first event of the session's stream, or None if it has none.

        Raises:
            grpc.RpcError: the call failed.
            TimeoutError: there was no event within `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                return await next_event(stream)
        except BaseException:
            stream.cancel()
            raise

    def _watch_stream(self) -> None:
        """Resume the session when its stream ends, and read the events of the stream."""
        self._stream.add_done_callback(self._on_stream_end)
        if self.member:  # otherwise there is nothing to read
            self._reader = asyncio.ensure_future(self._read_members(self._stream))

    def _on_stream_end(self, ended: Any) -> None:
        if not self._closed and ended is self._stream:
            self._resuming = asyncio.ensure_future(self._resume_with_code(ended))

    async def _resume_with_code(self, ended: Any) -> None:
        await self._resume(ended, await ended.code())

    def _call_errors(self) -> contextlib.AbstractContextManager[None]:
        """Convert the errors of the calls within to HAL errors."""
        return call_errors()

    def _replacing_channel(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: cancelling a task leaves its channel usable."""
        return contextlib.nullcontext()

    @contextlib.asynccontextmanager
    async def _closing_on_error(self) -> AsyncIterator[None]:
        """Close the channel if the work within fails."""
        try:
            yield
        except BaseException:
            await self.close_channel()
            raise

    async def close_channel(self) -> None:
        """Close the channel, which cuts off the calls in progress. A second call does nothing."""
        if self._stream is not None:
            self._stream.cancel()
        if self._reader is not None:
            self._reader.cancel()
        await self._close(self._channel)

    async def _close(self, channel: grpc.aio.Channel) -> None:
        await channel.close()

    def open_burst_stream(self) -> "BurstStream":
        """Open the stream of a burst.

        Raises:
            HalError: the connection has been closed.
        """
        return BurstStream(self.burst_stream)


async def next_event(stream: Any) -> session_pb2.SessionEvent | None:
    """Return the next event of the session's stream, or None at its end."""
    event = await stream.read()
    return event if isinstance(event, session_pb2.SessionEvent) else None


class BurstStream:
    """Stream of encoded messages of a burst."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        with call_errors():
            self._call = method(self._requests())

    async def _requests(self) -> AsyncIterator[bytes]:
        while (request := await self._outbox.get()) is not None:
            yield request

    def send(self, message: bytes) -> None:
        """Send a message. Does not wait: cancelling a write would cancel the stream."""
        self._outbox.put_nowait(message)

    async def receive(self) -> bytes:
        """Wait for the next message.

        Raises:
            TransportClosed: the stream has ended or failed.
        """
        try:
            with call_errors():
                message = await self._call.read()
        except HalError as error:
            raise TransportClosed(error) from None
        if isinstance(message, bytes):
            return message
        raise TransportClosed(burst_ended_error())

    def cancel(self) -> None:
        """Cut off the stream."""
        self._outbox.put_nowait(None)
        self._call.cancel()


def encoded_method(channel: Any, path: str) -> Callable[..., Awaitable[bytes]]:
    """Return a method of a channel that takes and returns encoded messages."""
    method: Callable[..., Awaitable[bytes]] = channel.unary_unary(path)
    return method


def start_call(method: Callable[..., Awaitable[T]], request: Any, metadata: Any) -> Awaitable[T]:
    """Start a unary call."""
    return method(request, metadata=metadata)


async def finish_call(call: Awaitable[T]) -> T:
    """Wait for the end of a call."""
    return await call


@contextlib.contextmanager
def call_errors() -> Iterator[None]:
    """Convert errors of gRPC to HAL errors."""
    try:
        yield
    except grpc.RpcError as error:
        raise hal_error(error) from error
    except grpc.aio.UsageError:  # another task has closed the channel
        raise connection_replaced_error() from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # the task was not cancelled: gRPC cancels the calls of a channel that is closed
        raise connection_replaced_error() from None


class PreparationCall:
    """Calls of one preparation. Cancelling the task cancels them.

    Attributes:
        cancelled: False: a cancelled task does not go on.
    """

    cancelled = False

    async def run(
        self,
        connection: GrpcCalls,
        method: "grpc.aio.UnaryStreamMultiCallable[Any, device_pb2.PrepareModelEvent]",
        request: object,
    ) -> device_pb2.Notify:
        """Make a call and return the result that it reports.

        Raises:
            HalError: the call failed without a result.
        """
        notify: device_pb2.Notify | None = None
        try:
            async for event in connection.stream(method, request):
                if event.WhichOneof("event") == "notify":
                    notify = event.notify
        except HalError as error:
            # an error of the launch is reported by notify first, which does not say that the session is lost
            if notify is None or is_session_lost(error):
                raise
        if notify is None:
            raise missing_notify_error()
        return notify
