"""The lines of bursts: a Burst.Stream, or, on the same machine, a lane."""

import queue

import grpc

from nnhal.buffered import AnyOutputs, BufferedExecution
from nnhal.burst import Line, LineBroken, Messages, Promised, Sent, Waiting, answered
from nnhal.connection import Connection
from nnhal.enums import ErrorStatus
from nnhal.errors import DeadObjectError, HalError
from nnhal.failures import hal_error
from nnhal.forms import KnownAnswers, KnownCalls
from nnhal.local import BURST_DEPTH, LaneLine
from nnhal.moulds import inline_pools
from nnhal.prepared import in_memory, read_results
from nnhal.tensors import Ends, Outputs
from nnhal.v1 import burst_pb2, prepared_model_pb2


def open_line(connection: Connection, prepared_model: bytes, ends: Ends) -> Line:
    """A line of a new burst.

    Raises:
        HalError: the service refuses the burst.
    """
    configure = prepared_model_pb2.PreparedModelRequest(session=connection.session, prepared_model=prepared_model)
    burst = connection.call(connection.prepared_model.ConfigureExecutionBurst, configure).burst
    local = connection.local if ends.are_base_types else None
    lane = local.doors.lane(BURST_DEPTH) if local is not None else None
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
        self._calls = KnownCalls()
        self._known = KnownAnswers(ends)
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers = connection.start(connection.stream, iter(self._outbox.get, None))

    def send(self, sent: Sent, deadline: float | None, measure_timing: bool) -> None:
        """See Line."""
        self._connection.tidy()
        plain = not self.kept and deadline is None and sent.buffered is None
        encoded = self._calls.encode(measure_timing, sent.arrays) if plain else None
        self._outbox.put(encoded or self._encoded(sent, deadline, measure_timing))

    def _encoded(self, sent: Sent, deadline: float | None, measure_timing: bool) -> bytes:
        pools = self._messages.pools(sent)
        try:
            elsewhere = self._connection.spill(pools, sent.handles, lasting=False)
        except HalError:
            self._connection.discard(*sent.handles)
            raise
        message = self._messages.execute(sent, pools, elsewhere, deadline, measure_timing)
        if not (self.kept or elsewhere or sent.buffered is not None or deadline is not None):
            self._calls.learn(measure_timing, sent.arrays, message, lambda one: inline_pools(one.execute.request))
        return message.SerializeToString()

    def release(self, identifier: int) -> Sent | None:
        """See Line."""
        self._outbox.put(self._messages.release(identifier).SerializeToString())
        return Waiting((), Promised())

    def receive(self, sent: Sent) -> AnyOutputs:
        """See Line."""
        try:
            encoded = next(self._answers)
        except StopIteration:
            raise LineBroken(_ended()) from None
        except grpc.RpcError as error:
            raise LineBroken(hal_error(error)) from error
        if not sent.handles and sent.buffered is None and (outputs := self._known.outputs(encoded)) is not None:
            return outputs
        try:
            return self._outputs(encoded, sent.buffered)
        except HalError:
            self._messages.failed(sent.arrays)
            raise
        finally:
            self._connection.discard(*sent.handles)

    def _outputs(self, encoded: bytes, execution: BufferedExecution | None) -> AnyOutputs:
        response = burst_pb2.BurstStreamResponse.FromString(encoded)
        if response.HasField("released"):
            return Outputs()
        result = answered(response)
        memories = self._connection.fetch(in_memory(result.returned))
        if execution is not None:
            return execution.read(result, memories)
        outputs = read_results(self._ends, result, memories)
        self._known.learn(encoded, response, lambda one: one.result.returned, outputs)
        return outputs

    def close(self) -> None:
        """See Line."""
        self._outbox.put(None)
        self._answers.cancel()
        self._connection.discard(self._burst)


def _ended() -> HalError:
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the service ended the burst")
