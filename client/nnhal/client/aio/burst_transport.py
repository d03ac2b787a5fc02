"""Transports of bursts: a Burst.Stream of gRPC, or a channel of the same machine. A lost one is replaced by another."""

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from nnhal.client.aio.concurrency import Lock, Work, open_channel
from nnhal.client.aio.connection import Connection
from nnhal.client.aio.plain_execution import define
from nnhal.client.aio.reconnect import ReconnectingSession
from nnhal.client.aio.result_queue import BurstTransport, Pending, ResultQueue, new_result
from nnhal.client.aio.reusable import RenewableModel
from nnhal.client.aio.shm_transport import receive_result, take_large_outputs
from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.buffered_execution import AnyOutputs, BufferedExecution
from nnhal.client.core.burst import BurstMessages, CachedInputs, TransportClosed, burst_closed_error, result_or_raise
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.core.definitions import RequestDefinitions
from nnhal.client.core.prepared_model import RemoteModel, decode_outputs, memory_handles
from nnhal.client.core.session import connection_lost_error
from nnhal.client.forks import forked_error, watch_forks
from nnhal.client.shm.pool import BURST_DEPTH
from nnhal.errors import HalError
from nnhal.types import AnyArray
from nnhal.v1 import burst_pb2, prepared_model_pb2

if TYPE_CHECKING:
    from nnhal.client.shm.channel import ShmChannel


T = TypeVar("T")


class GrpcBurstTransport:
    """Burst over a Burst.Stream."""

    depth = 64

    def __init__(self, connection: Connection, burst: bytes, io: ModelIO, cached_inputs: CachedInputs) -> None:
        self._connection = connection
        self._burst = burst
        self._io = io
        self._cached_inputs = cached_inputs
        self._messages = BurstMessages(io, connection.session, burst, cached_inputs)
        self._definitions = RequestDefinitions(io)
        self._inputs: list[AnyArray] = []
        self._stream = connection.open_burst_stream()

    async def send(self, execution: Pending) -> None:
        """See BurstTransport."""
        await self._connection.flush_releases()
        execution.definition = None
        if not self._cached_inputs and execution.buffered is None:
            target = RemoteModel(self._connection, self._burst)
            execution.definition = await define(
                self._definitions, target, execution.arrays, measure_timing=execution.measure_timing
            )
        if execution.definition is not None:
            remaining = execution.deadline.remaining
            self._stream.send(execution.definition.encode(execution.arrays, remaining, stream=True))
        else:
            self._stream.send(await self._encode(execution))

    async def _encode(self, execution: Pending) -> bytes:
        """Return a message that contains the whole request."""
        pools = self._messages.pools(execution)
        try:
            uploaded = await self._connection.upload_large(pools, execution.handles)
        except BaseException:
            self._connection.discard(*execution.handles)
            raise
        return self._messages.execute(execution, pools, uploaded).SerializeToString()

    def release(self, identifier: int) -> bool:
        """See BurstTransport."""
        self._stream.send(self._messages.release(identifier).SerializeToString())
        return True

    async def receive(self, execution: Pending) -> AnyOutputs:
        """See BurstTransport."""
        encoded = await self._stream.receive()
        if execution.definition is not None:
            outputs = execution.definition.decode(encoded, stream=True, copy=execution.copy)
            if outputs is not None:
                return outputs
        try:
            return await self._decode(encoded, execution.buffered)
        except HalError:
            self._messages.send_again(execution.arrays)
            raise
        finally:
            self._connection.discard(*execution.handles)

    async def _decode(self, encoded: bytes, execution: BufferedExecution | None) -> AnyOutputs:
        response = burst_pb2.BurstStreamResponse.FromString(encoded)
        if response.HasField("released"):
            return Outputs()
        result = result_or_raise(response)
        memories = await self._connection.take_memories(memory_handles(result.returned))
        if execution is not None:
            return execution.read(result, memories)
        return decode_outputs(self._io, result, memories)

    def inputs(self) -> list[AnyArray]:
        """See BurstTransport."""
        self._inputs = self._inputs or self._io.new_inputs()
        return self._inputs

    def close(self) -> None:
        """See BurstTransport."""
        self._stream.cancel()
        self._connection.discard(self._burst)


class ShmBurstTransport:
    """Burst over a channel of its own."""

    depth = BURST_DEPTH

    def __init__(
        self, channel: "ShmChannel", burst: bytes, io: ModelIO, connection: Connection, cached_inputs: CachedInputs
    ) -> None:
        self._cached_inputs = cached_inputs
        self._channel = channel
        self._burst = burst
        self._io = io
        self._connection = connection

    async def send(self, execution: Pending) -> None:
        """See BurstTransport."""
        await self._connection.flush_releases()
        try:
            self._channel.start_pending(self._burst, self._io, execution, self._cached_inputs)
        except OSError:
            raise TransportClosed(connection_lost_error()) from None

    def release(self, identifier: int) -> bool:
        """See BurstTransport. The channel skips the answers."""
        with suppress(OSError):  # the next execution finds the connection broken
            self._channel.release(identifier)
        return False

    async def receive(self, execution: Pending) -> AnyOutputs:
        """See BurstTransport."""
        try:
            result = await receive_result(self._channel)
            memories = await take_large_outputs(self._channel, result, self._io, self._connection)
            return result.outputs(self._io, execution.buffered, memories, copy=execution.copy)
        except HalError as error:
            if self._channel.broken:
                raise TransportClosed(error) from None
            raise
        finally:
            self._channel.finish()

    def inputs(self) -> list[AnyArray]:
        """See BurstTransport."""
        arrays = self._io.new_inputs()
        try:
            views = self._channel.reserve_inputs(self._burst, self._io, arrays)
        except OSError:
            raise TransportClosed(connection_lost_error()) from None
        return [view for view in views if view is not None]

    def close(self) -> None:
        """See BurstTransport."""
        with suppress(OSError):  # the service may have closed it already
            self._channel.connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for a result
        self._channel.connection.close()
        self._connection.discard(self._burst)


async def open_burst_transport(
    connection: Connection, prepared_model: bytes, io: ModelIO, cached_inputs: CachedInputs
) -> BurstTransport:
    """Open a burst of a prepared model, and return its transport.

    Raises:
        HalError: the service refuses the burst.
    """
    configure = prepared_model_pb2.PreparedModelRequest(session=connection.session, prepared_model=prepared_model)
    burst = (await connection.call(connection.prepared_model.ConfigureExecutionBurst, configure)).burst
    shm = connection.shm if io.fits_shared_memory else None
    channel = await open_channel(shm.factory, BURST_DEPTH) if shm is not None else None
    if channel is None:
        return GrpcBurstTransport(connection, burst, io, cached_inputs)
    return ShmBurstTransport(channel, burst, io, connection, cached_inputs)


class RenewableBurst:
    """Burst that is opened again when its session is lost. Executions without buffers then repeat themselves.

    Attributes:
        cached_inputs: inputs that are sent only once.
        results: the executions in progress on the current transport.
    """

    results: ResultQueue

    def __init__(self, session: ReconnectingSession, model: RenewableModel, io: ModelIO) -> None:
        self.cached_inputs = CachedInputs()
        self._session = session
        self._model = model
        self._io = io
        self._opening = Lock()
        self._queues: list[ResultQueue] = []
        self._closed: HalError | None = None
        watch_forks(self)

    def leave_to_parent(self) -> None:
        """Refuse all further calls, because this process is a fork of the one that has opened the burst."""
        self._opening = Lock()  # a thread of the parent may hold it
        self._closed = forked_error()

    async def open(self) -> None:
        """Open the first transport.

        Raises:
            HalError: the model has been closed, or the session has too many bursts.
        """
        await self._session.repeat(lambda connection: self.open_on(connection, NO_DEADLINE), NO_DEADLINE)

    async def open_on(self, connection: Connection, deadline: SharedDeadline) -> ResultQueue:
        """Return the executions on a connection, after opening a transport there if there is none.

        Raises:
            HalError: the model cannot be prepared there; the service refuses the burst; or the burst has been closed.
        """
        async with self._opening:
            if self._closed is not None:
                raise self._closed.with_traceback(None)
            if not self._queues or self.results.connection is not connection or self.results.error is not None:
                remote = await self._model.prepare_on(connection, deadline)
                transport = await open_burst_transport(*remote, self._io, self.cached_inputs)
                if self._queues:
                    self.results.retire()  # executions that a stopping service still runs go on
                self.results = ResultQueue(transport, connection)
                self._queues = [*(results for results in self._queues if results.error is None), self.results]
            return self.results

    async def execute(self, execution: Pending) -> AnyOutputs:
        """Execute.

        Raises:
            HalError: the execution failed, or the burst has been closed.
        """
        return await self.result(execution, await self.send(execution))

    async def send(self, execution: Pending) -> ResultQueue:
        """Send an execution, and return the queue of its result.

        Raises:
            HalError: as for `execute`.
        """
        results = self.results
        try:
            await results.send(execution)
        except HalError as error:
            if execution.buffered is not None:
                raise
            return await self.repeat(lambda results: _send(results, execution), results, error, execution.deadline)
        return results

    async def result(self, execution: Pending, results: ResultQueue, *, repeat: bool = True) -> AnyOutputs:
        """Wait for the outputs of an execution, which is repeated if its session is lost and `repeat` is true.

        Raises:
            HalError: as for `execute`.
        """
        try:
            return await results.wait(execution)
        except HalError as error:
            if not repeat or execution.buffered is not None:
                raise
            return await self.repeat(lambda results: _execute(results, execution), results, error, execution.deadline)

    async def repeat(
        self,
        work: Work[[ResultQueue], T],
        failed: ResultQueue,
        error: HalError,
        deadline: SharedDeadline = NO_DEADLINE,
    ) -> T:
        """Do some work on another transport, after an error on one whose session may be lost.

        Raises:
            HalError: the session is not lost, the burst has been closed, or the work failed again.
        """
        if self._closed is not None or not self._session.is_lost(error, failed.connection):
            raise error

        async def work_on(connection: Connection) -> T:
            return await work(await self.open_on(connection, deadline))

        return await self._session.repeat(work_on, deadline, failed.connection, error.with_traceback(None))

    async def release(self, array: AnyArray) -> None:
        """Release an array of the cached inputs."""
        identifier = self.cached_inputs.remove(array)
        if identifier >= 0:
            await self.results.release(identifier)

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed is not None

    async def close(self) -> None:
        """Wait for the executions in progress, then close the burst."""
        self._closed = self._closed or burst_closed_error()
        async with self._opening:
            for results in self._queues:
                await results.close()


async def _send(results: ResultQueue, execution: Pending) -> ResultQueue:
    await results.send(execution)
    return results


async def _execute(results: ResultQueue, execution: Pending) -> AnyOutputs:
    again = execution.again(new_result())
    await results.send(again)
    return await results.wait(again)
