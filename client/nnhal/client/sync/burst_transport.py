"""Transports of bursts: a Burst.Stream of gRPC, or a channel of the same machine.

Hand-written: the threads that wait for results read them, while in the asyncio client one task does.
"""

import socket
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.buffered_execution import AnyOutputs, BufferedExecution
from nnhal.client.core.burst import BurstMessages, CachedInputs, PendingExecution, result_or_raise
from nnhal.client.core.definitions import RequestDefinitions
from nnhal.client.core.prepared_model import RemoteModel, decode_outputs, memory_handles
from nnhal.client.core.reconnect import MAX_RETRIES
from nnhal.client.core.rpc_errors import hal_error
from nnhal.client.core.session import connection_lost_error
from nnhal.client.shm.pool import BURST_DEPTH
from nnhal.client.sync.connection import INTERRUPTS, Connection
from nnhal.client.sync.definitions import define
from nnhal.client.sync.shm_transport import OpenSession, receive_result, take_large_outputs
from nnhal.errors import DeadObjectError, HalError
from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import burst_pb2, prepared_model_pb2

if TYPE_CHECKING:
    from nnhal.client.shm.channel import ShmChannel


class PendingResult:
    """Minimal result holder for the thread that reads its result itself. A Future costs more than some models run."""

    def __init__(self) -> None:
        self.outputs: AnyOutputs | None = None
        self.error: HalError | None = None

    def done(self) -> bool:
        """Return whether there is a result."""
        return self.outputs is not None or self.error is not None

    def result(self) -> AnyOutputs:
        """Return the outputs; there must be a result.

        Raises:
            HalError: the execution failed.
        """
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


Pending = PendingExecution[Future[Any] | PendingResult]


class TransportClosed(Exception):
    """The transport cannot be used any more.

    Attributes:
        error: the error of its executions.
    """

    def __init__(self, error: HalError) -> None:
        super().__init__(str(error))
        self.error = error


class BurstTransport(Protocol):
    """Transport of the executions of a burst. At most one thread sends, and one receives, at a time."""

    depth: int
    """Largest number of executions in progress."""
    cached_inputs: CachedInputs

    def send(self, execution: Pending, deadline: float | None, measure_timing: bool) -> None:
        """Send an execution.

        Raises:
            TransportClosed: the transport cannot be used any more.
            HalError: the service accepts no more memory.
        """
        ...

    def release(self, identifier: int) -> Pending | None:
        """Release a cached input. Return what to wait for, if there will be a response."""
        ...

    def receive(self, execution: Pending) -> AnyOutputs:
        """Wait for the outputs of the execution that was sent longest ago.

        Raises:
            TransportClosed: no response will ever come.
            HalError: the execution failed.
        """
        ...

    def inputs(self) -> list[AnyArray]:
        """Return an array for each input, into which the caller may write the inputs of the next execution.

        Raises:
            TransportClosed: the transport cannot be used any more.
            HalError: INVALID_ARGUMENT: the shape of an input is not fixed.
        """
        ...

    def close(self) -> None:
        """Close the transport."""
        ...


def open_burst_transport(
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
    burst = connection.call(connection.prepared_model.ConfigureExecutionBurst, configure).burst
    shm = connection.shm if io.has_known_sizes else None
    channel = shm.factory.open(BURST_DEPTH) if shm is not None else None
    if channel is None:
        return GrpcBurstTransport(connection, burst, io, cached_inputs)
    return ShmBurstTransport(channel, burst, io, connection, cached_inputs)


class GrpcBurstTransport:
    """Burst over a Burst.Stream."""

    depth = 64

    def __init__(self, connection: Connection, burst: bytes, io: ModelIO, cached_inputs: CachedInputs) -> None:
        self._burst = burst
        self._connection = connection
        self._io = io
        self._messages = BurstMessages(io, connection.session, burst, cached_inputs)
        self.cached_inputs = cached_inputs
        self._definitions = RequestDefinitions(io)
        self._inputs: list[AnyArray] = []
        self._stream = connection.open_burst_stream()

    def send(self, execution: Pending, deadline: float | None, measure_timing: bool) -> None:
        """See BurstTransport."""
        self._connection.flush_releases()
        if not self.cached_inputs and execution.buffered is None:
            target = RemoteModel(self._connection, self._burst)
            execution.definition = define(self._definitions, target, execution.arrays, measure_timing=measure_timing)
        if execution.definition is not None:
            self._send(execution.definition.encode(execution.arrays, deadline, stream=True))
        else:
            self._send(self._encode(execution, deadline, measure_timing))

    def _send(self, message: bytes) -> None:
        try:
            self._stream.send(message)
        except INTERRUPTS:
            self._connection.replace_channel(self._stream)
            raise

    def _encode(self, execution: Pending, deadline: float | None, measure_timing: bool) -> bytes:
        pools = self._messages.pools(execution)
        try:
            uploaded = self._connection.upload_large(pools, execution.handles)
        except HalError:
            self._connection.discard(*execution.handles)
            raise
        message = self._messages.execute(execution, pools, uploaded, deadline, measure_timing)
        return message.SerializeToString()

    def release(self, identifier: int) -> Pending | None:
        """See BurstTransport."""
        self._send(self._messages.release(identifier).SerializeToString())
        return PendingExecution((), PendingResult(), retries=MAX_RETRIES)

    def receive(self, execution: Pending) -> AnyOutputs:
        """See BurstTransport."""
        try:
            encoded = self._stream.receive()
        except StopIteration:
            error = DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the service ended the burst")
            raise TransportClosed(error) from None
        except grpc.RpcError as failed:
            raise TransportClosed(hal_error(failed)) from failed
        except INTERRUPTS:
            self._connection.replace_channel(self._stream)
            raise
        if execution.definition is not None:
            outputs = execution.definition.decode(encoded, stream=True, copy=execution.copy)
            if outputs is not None:
                return outputs
        try:
            return self._decode(encoded, execution.buffered)
        except HalError:
            self._messages.send_again(execution.arrays)
            raise
        finally:
            self._connection.discard(*execution.handles)

    def _decode(self, encoded: bytes, execution: BufferedExecution | None) -> AnyOutputs:
        response = burst_pb2.BurstStreamResponse.FromString(encoded)
        if response.HasField("released"):
            return Outputs()
        result = result_or_raise(response)
        memories = self._connection.take_memories(memory_handles(result.returned))
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
        self, channel: "ShmChannel", burst: bytes, io: ModelIO, session: OpenSession, cached_inputs: CachedInputs
    ) -> None:
        self.cached_inputs = cached_inputs
        self._channel = channel
        self._burst = burst
        self._io = io
        self._session = session

    def send(self, execution: Pending, deadline: float | None, measure_timing: bool) -> None:
        """See BurstTransport."""
        self._session.flush_releases()
        try:
            self._channel.start_pending(self._burst, self._io, execution, deadline, measure_timing, self.cached_inputs)
        except OSError:
            raise TransportClosed(connection_lost_error()) from None

    def release(self, identifier: int) -> Pending | None:
        """See BurstTransport. The channel skips the answers."""
        with suppress(OSError):  # the next execution finds the connection broken
            self._channel.release(identifier)
        return None

    def receive(self, execution: Pending) -> AnyOutputs:
        """See BurstTransport."""
        try:
            result = receive_result(self._channel)
            memories = take_large_outputs(self._channel, result, self._io, self._session)
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
        self._session.discard(self._burst)
