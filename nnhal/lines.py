"""The lines of bursts: a Burst.Stream, or, on the same machine, a lane."""

import queue

import grpc

from nnhal.burst import Line, LineBroken, Messages, Promised, Sent, Waiting, answered
from nnhal.connection import Connection
from nnhal.enums import ErrorStatus
from nnhal.errors import DeadObjectError, HalError
from nnhal.failures import hal_error
from nnhal.local import BURST_DEPTH, LaneLine
from nnhal.prepared import outputs_in_memory, read_results
from nnhal.tensors import Ends, Outputs
from nnhal.v1 import burst_pb2, prepared_model_pb2


def open_line(connection: Connection, prepared_model: bytes, ends: Ends) -> Line:
    """A line of a new burst.

    Raises:
        HalError: the service refuses the burst.
    """
    configure = prepared_model_pb2.PreparedModelRequest(session=connection.session, prepared_model=prepared_model)
    burst = connection.call(connection.prepared_model.ConfigureExecutionBurst, configure).burst
    lane = connection.local.doors.lane(BURST_DEPTH) if connection.local is not None else None
    if lane is None:
        return StreamLine(connection, burst, ends)
    return LaneLine(lane, burst, ends, connection)


class StreamLine:
    """A Burst.Stream."""

    depth = 64

    def __init__(self, connection: Connection, burst: bytes, ends: Ends) -> None:
        self._burst = burst
        self._connection = connection
        self._ends = ends
        self._messages = Messages(ends, connection.session, burst)
        self.kept = self._messages.kept
        self._outbox: queue.SimpleQueue[burst_pb2.BurstStreamRequest | None] = queue.SimpleQueue()
        self._answers = connection.start(connection.burst.Stream, iter(self._outbox.get, None))

    def send(self, sent: Sent, deadline: float | None, measure_timing: bool) -> None:
        """See Line."""
        self._connection.tidy()
        pools = self._messages.pools(sent.arrays)
        try:
            elsewhere = self._connection.spill(pools, sent.handles, lasting=False)
        except HalError:
            self._connection.discard(*sent.handles)
            raise
        self._outbox.put(self._messages.execute(sent.arrays, pools, elsewhere, deadline, measure_timing))

    def release(self, identifier: int) -> Sent | None:
        """See Line."""
        self._outbox.put(self._messages.release(identifier))
        return Waiting((), Promised())

    def receive(self, sent: Sent) -> Outputs:
        """See Line."""
        try:
            response = next(self._answers)
        except StopIteration:
            raise LineBroken(_ended()) from None
        except grpc.RpcError as error:
            raise LineBroken(hal_error(error)) from error
        try:
            return self._outputs(response, sent.handles)
        except HalError:
            self._messages.failed(sent.arrays)
            raise
        finally:
            self._connection.discard(*sent.handles)

    def _outputs(self, response: burst_pb2.BurstStreamResponse, handles: list[bytes]) -> Outputs:
        if response.HasField("released"):
            return Outputs()
        result = answered(response)
        handles += (returned := outputs_in_memory(result))
        return read_results(self._ends, result, {h: self._connection.read_memory(h) for h in returned})

    def close(self) -> None:
        """See Line."""
        self._outbox.put(None)
        self._answers.cancel()
        self._connection.discard(self._burst)


def _ended() -> HalError:
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the service ended the burst")
