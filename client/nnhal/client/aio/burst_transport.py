"""Transports of bursts for asyncio: a Burst.Stream of gRPC, or a channel of the same machine.

Hand-written: one task reads the results of all executions, while in the synchronous client the waiting threads do.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Protocol

import grpc
import grpc.aio

from nnhal.client.aio.connection import Connection, hal_errors
from nnhal.client.aio.definitions import define
from nnhal.client.aio.shm_transport import OpenSession, open_channel, receive_result, take_large_outputs
from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.buffered_execution import AnyOutputs
from nnhal.client.core.burst import (
    BurstMessages,
    CachedInputs,
    PendingExecution,
    burst_closed_error,
    result_or_raise,
)
from nnhal.client.core.definitions import RequestDefinitions
from nnhal.client.core.prepared_model import RemoteModel, decode_outputs, memory_handles
from nnhal.client.core.rpc_errors import hal_error
from nnhal.client.core.session import connection_lost_error
from nnhal.client.shm.pool import BURST_DEPTH
from nnhal.errors import DeadObjectError, HalError
from nnhal.types import ErrorStatus
from nnhal.v1 import burst_pb2, prepared_model_pb2

if TYPE_CHECKING:
    from nnhal.client.shm.channel import ShmChannel

Pending = PendingExecution[asyncio.Future[AnyOutputs]]


class BurstTransport(Protocol):
    """Transport of the executions of a burst."""

    @property
    def broken(self) -> bool:
        """True if it cannot be used any more."""
        ...

    async def execute(self, execution: Pending, deadline: float | None, measure_timing: bool) -> AnyOutputs:
        """Execute. Executions in progress are sent, and answered, in the order of the calls.

        Raises:
            HalError: the execution failed, or the transport is closed.
        """
        ...

    async def release(self, identifier: int) -> None:
        """Release a cached input."""
        ...

    async def close(self) -> None:
        """Wait for the executions in progress, then close."""
        ...


async def open_burst_transport(
    connection: Connection, prepared_model: bytes, io: ModelIO, cached_inputs: CachedInputs
) -> BurstTransport:
    """Open a burst and return its transport.

    Args:
        connection: connection of the prepared model.
        prepared_model: handle of the model.
        io: inputs and outputs of the model.
        cached_inputs: inputs that are sent only once.

    Raises:
        HalError: the service refuses the burst.
    """
    configure = prepared_model_pb2.PreparedModelRequest(session=connection.session, prepared_model=prepared_model)
    burst = (await connection.call(connection.prepared_model.ConfigureExecutionBurst, configure)).burst
    shm = connection.shm if io.has_known_sizes else None
    channel = await open_channel(shm.factory, BURST_DEPTH) if shm is not None else None
    if channel is None:
        with hal_errors():
            return GrpcBurstTransport(connection, burst, io, cached_inputs)
    return ShmBurstTransport(channel, burst, io, connection, cached_inputs)


class GrpcBurstTransport:
    """Burst over a Burst.Stream."""

    def __init__(self, connection: Connection, burst: bytes, io: ModelIO, cached_inputs: CachedInputs) -> None:
        self._connection = connection
        self._burst = burst
        self._io = io
        self._sending = asyncio.Lock()
        self._in_progress: deque[Pending] = deque()
        self._error: HalError | None = None
        self._messages = BurstMessages(io, connection.session, burst, cached_inputs)
        self._definitions = RequestDefinitions(io)
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._call = connection.burst_stream(self._requests())
        # one task reads for all, so that cancelling an execution does not cancel the stream
        self._reader = asyncio.create_task(self._read())

    @property
    def broken(self) -> bool:
        """See BurstTransport."""
        return self._error is not None

    async def execute(self, execution: Pending, deadline: float | None, measure_timing: bool) -> AnyOutputs:
        """See BurstTransport."""
        async with self._sending:
            await self._connection.flush_releases()
            if not self._messages.cached_inputs and execution.buffered is None:
                target = RemoteModel(self._connection, self._burst)
                execution.definition = await define(
                    self._definitions, target, execution.arrays, measure_timing=measure_timing
                )
            if execution.definition is not None:
                self._send(execution.definition.encode(execution.arrays, deadline, stream=True), execution)
            else:
                await self._send_message(execution, deadline, measure_timing)
        return await execution.future

    async def _send_message(self, execution: Pending, deadline: float | None, measure_timing: bool) -> None:
        """Send an execution as a message that contains the whole request."""
        pools = self._messages.pools(execution)
        try:
            uploaded = await self._connection.upload_large(pools, execution.handles)
            message = self._messages.execute(execution, pools, uploaded, deadline, measure_timing)
            self._send(message.SerializeToString(), execution)
        except BaseException:
            self._connection.discard(*execution.handles)
            raise

    def _send(self, encoded: bytes, execution: Pending) -> None:
        # does not wait: cancelling a write would cancel the stream
        if self._error is not None:
            raise self._error.with_traceback(None)
        self._in_progress.append(execution)
        self._outbox.put_nowait(encoded)

    async def _requests(self) -> AsyncIterator[bytes]:
        while (request := await self._outbox.get()) is not None:
            yield request

    async def _read(self) -> None:
        """Give each response to the execution sent longest ago, until the stream ends."""
        error: HalError = DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the service ended the burst")
        try:
            async for encoded in self._call:
                await self._settle(self._in_progress.popleft(), encoded)
        except grpc.RpcError as failed:
            error = hal_error(failed)
        except asyncio.CancelledError:
            error = burst_closed_error()
        self._error = error
        self._outbox.put_nowait(None)
        for execution in self._in_progress:
            if not execution.future.done():
                execution.future.set_exception(error)
        self._in_progress.clear()

    async def _settle(self, execution: Pending, encoded: bytes) -> None:
        try:
            await settle(execution, self._outputs(execution, encoded))
        finally:
            self._connection.discard(*execution.handles)

    async def _outputs(self, execution: Pending, encoded: bytes) -> AnyOutputs:
        if execution.definition is not None:
            outputs = execution.definition.decode(encoded, stream=True)
            if outputs is not None:
                return outputs
        response = burst_pb2.BurstStreamResponse.FromString(encoded)
        if response.HasField("released"):
            return Outputs()
        try:
            result = result_or_raise(response)
            memories = await self._connection.take_memories(memory_handles(result.returned))
        except HalError:
            self._messages.send_again(execution.arrays)
            raise
        if execution.buffered is not None:
            return execution.buffered.read(result, memories)
        return decode_outputs(self._io, result, memories)

    async def release(self, identifier: int) -> None:
        """See BurstTransport."""
        async with self._sending:
            if self._error is None:
                execution: Pending = PendingExecution((), asyncio.get_running_loop().create_future())
                execution.future.add_done_callback(_ignore_error)
                self._send(self._messages.release(identifier).SerializeToString(), execution)

    async def close(self) -> None:
        """See BurstTransport."""
        async with self._sending:
            futures = [execution.future for execution in self._in_progress]
            if futures:
                await asyncio.wait(futures)
            self._call.cancel()
            self._reader.cancel()
        await asyncio.wait([self._reader])
        self._connection.discard(self._burst)


def _ignore_error(future: asyncio.Future[AnyOutputs]) -> None:
    """Mark the error of a future as retrieved, because no task waits for it."""
    if not future.cancelled():
        future.exception()


class ShmBurstTransport:
    """Burst over a channel of its own."""

    def __init__(
        self, channel: "ShmChannel", burst: bytes, io: ModelIO, session: OpenSession, cached_inputs: CachedInputs
    ) -> None:
        self._channel = channel
        self._burst = burst
        self._io = io
        self._session = session
        self._cached_inputs = cached_inputs
        self._sending = asyncio.Lock()
        self._slots = asyncio.Semaphore(BURST_DEPTH)
        self._in_progress: deque[Pending] = deque()
        self._sent = asyncio.Event()
        self._error: HalError | None = None
        # one task reads for all, so that a cancelled execution does not lose the results of others
        self._reader = asyncio.create_task(self._read())

    @property
    def broken(self) -> bool:
        """See BurstTransport."""
        return self._error is not None

    async def execute(self, execution: Pending, deadline: float | None, measure_timing: bool) -> AnyOutputs:
        """See BurstTransport."""
        async with self._sending:
            await self._session.flush_releases()
            await self._slots.acquire()
            if self._error is not None:
                self._slots.release()  # all others that wait fail, too
                raise self._error.with_traceback(None)
            try:
                self._channel.start_pending(
                    self._burst, self._io, execution, deadline, measure_timing, self._cached_inputs
                )
            except OSError:
                self._fail(connection_lost_error())
                raise connection_lost_error() from None
            self._in_progress.append(execution)
            self._sent.set()
        return await execution.future

    async def _read(self) -> None:
        """Give each result to the execution sent longest ago."""
        while True:
            while not self._in_progress:
                self._sent.clear()
                await self._sent.wait()
            await settle(self._in_progress[0], self._outputs(self._in_progress[0]))
            self._in_progress.popleft()
            self._slots.release()
            if self._channel.broken:
                self._fail(connection_lost_error())
                return

    async def _outputs(self, execution: Pending) -> AnyOutputs:
        try:
            result = await receive_result(self._channel)
            memories = await take_large_outputs(self._channel, result, self._io, self._session)
            return result.outputs(self._io, execution.buffered, memories)
        finally:
            self._channel.finish()

    def _fail(self, error: HalError) -> None:
        self._error = self._error or error
        while self._in_progress:
            execution = self._in_progress.popleft()
            if not execution.future.done():
                execution.future.set_exception(error)
        self._slots.release()

    async def release(self, identifier: int) -> None:
        """See BurstTransport."""
        async with self._sending:
            if self._error is None:
                try:
                    self._channel.release(identifier)
                except OSError:
                    self._fail(connection_lost_error())

    async def close(self) -> None:
        """See BurstTransport."""
        async with self._sending:
            futures = [execution.future for execution in self._in_progress]
            if futures:
                await asyncio.wait(futures)
            self._reader.cancel()
            await asyncio.wait([self._reader])
            self._fail(burst_closed_error())
        self._channel.connection.close()
        self._session.discard(self._burst)


async def settle(execution: Pending, work: Awaitable[AnyOutputs]) -> None:
    """Set the future of an execution to the outcome of some work, unless the future was cancelled."""
    try:
        outputs = await work
    except HalError as error:
        execution.clear_buffers()
        if not execution.future.done():
            execution.future.set_exception(error)
    else:
        if not execution.future.done():
            execution.future.set_result(outputs)
