"""Bursts for asyncio: as `nnhal.burst`; what waits is awaited.

async with prepared.burst() as burst:
    outputs = await burst.execute([image])
    tasks = [burst.submit([image]) for image in images]
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Protocol, Unpack, overload

import grpc
import grpc.aio

from nnhal.aio_connection import Connection
from nnhal.aio_local import LaneLine, open_lane, settle
from nnhal.buffered import AnyOutputs, BufferInputs, BufferOutputs, How, Targets
from nnhal.burst import Messages, Waiting, answered
from nnhal.enums import ErrorStatus
from nnhal.errors import DeadObjectError, HalError
from nnhal.failures import hal_error
from nnhal.local import BURST_DEPTH
from nnhal.prepared import in_memory, read_results
from nnhal.tensors import Ends, Outputs
from nnhal.types import AnyArray
from nnhal.v1 import burst_pb2, prepared_model_pb2

Sent = Waiting[asyncio.Future[AnyOutputs]]


class Line(Protocol):
    """What carries the executions of a burst."""

    async def execute(self, sent: Sent, deadline: float | None, measure_timing: bool) -> AnyOutputs:
        """Executes; those that are on their way are sent, and answered, in the order of the calls."""
        ...

    def keep(self, array: AnyArray) -> AnyArray:
        """Keeps an input."""
        ...

    async def release(self, array: AnyArray) -> None:
        """Forgets it."""
        ...

    async def close(self) -> None:
        """Waits for what is on its way, then ends it."""
        ...


class StreamLine:
    """A Burst.Stream."""

    def __init__(self, connection: Connection, burst: bytes, ends: Ends) -> None:
        self._connection = connection
        self._burst = burst
        self._ends = ends
        self._sending = asyncio.Lock()
        self._waiting: deque[Sent] = deque()
        self._broken: HalError | None = None
        self._messages = Messages(ends, connection.session, burst)
        self._outbox: asyncio.Queue[burst_pb2.BurstStreamRequest] = asyncio.Queue()
        self._call = connection.burst.Stream(self._requests())
        # an execution that is cancelled must not take the stream with it: one task reads, for all of them
        self._reader = asyncio.create_task(self._read())

    async def execute(self, sent: Sent, deadline: float | None, measure_timing: bool) -> AnyOutputs:
        """See Line."""
        async with self._sending:
            await self._connection.tidy()
            pools = self._messages.pools(sent)
            try:
                elsewhere = await self._connection.spill(pools, sent.handles, lasting=False)
                message = self._messages.execute(sent, pools, elsewhere, deadline, measure_timing)
                self._send(message, sent)
            except BaseException:
                self._connection.discard(*sent.handles)
                raise
        return await sent.future

    def _send(self, message: burst_pb2.BurstStreamRequest, sent: Sent) -> None:
        # does not wait: a write that is cancelled would cancel the stream
        if self._broken is not None:
            raise self._broken.with_traceback(None)
        self._waiting.append(sent)
        self._outbox.put_nowait(message)

    async def _requests(self) -> AsyncIterator[burst_pb2.BurstStreamRequest]:
        while True:
            yield await self._outbox.get()

    async def _read(self) -> None:
        """Gives each answer to the execution that was sent longest ago, until the stream ends."""
        error: HalError = DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the service ended the burst")
        try:
            async for response in self._call:
                await self._settle(self._waiting.popleft(), response)
        except grpc.RpcError as failed:
            error = hal_error(failed)
        except asyncio.CancelledError:
            error = HalError(ErrorStatus.DEVICE_UNAVAILABLE, "the burst has been closed")
        self._broken = error
        for sent in self._waiting:
            if not sent.future.done():
                sent.future.set_exception(error)
        self._waiting.clear()

    async def _settle(self, sent: Sent, response: burst_pb2.BurstStreamResponse) -> None:
        try:
            await settle(sent, self._outputs(sent, response))
        finally:
            self._connection.discard(*sent.handles)

    async def _outputs(self, sent: Sent, response: burst_pb2.BurstStreamResponse) -> AnyOutputs:
        if response.HasField("released"):
            return Outputs()
        try:
            result = answered(response)
            memories = await self._connection.fetch(in_memory(result.returned))
        except HalError:
            self._messages.failed(sent.arrays)
            raise
        if sent.buffered is not None:
            return sent.buffered.read(result, memories)
        return read_results(self._ends, result, memories)

    def keep(self, array: AnyArray) -> AnyArray:
        """See Line."""
        return self._messages.kept.add(array)

    async def release(self, array: AnyArray) -> None:
        """See Line."""
        async with self._sending:
            identifier = self._messages.kept.remove(array)
            if identifier >= 0:
                sent: Sent = Waiting((), asyncio.get_running_loop().create_future())
                sent.future.add_done_callback(_seen)
                self._send(self._messages.release(identifier), sent)

    async def close(self) -> None:
        """See Line."""
        async with self._sending:
            left = [sent.future for sent in self._waiting]
            if left:
                await asyncio.wait(left)
            self._call.cancel()
            self._reader.cancel()
        await asyncio.wait([self._reader])
        self._connection.discard(self._burst)


def _seen(future: asyncio.Future[AnyOutputs]) -> None:
    """Nobody waits for it: an error in it is no news."""
    if not future.cancelled():
        future.exception()


async def open_line(connection: Connection, prepared_model: bytes, ends: Ends) -> Line:
    """A line of a new burst.

    Raises:
        HalError: the service refuses the burst.
    """
    configure = prepared_model_pb2.PreparedModelRequest(session=connection.session, prepared_model=prepared_model)
    burst = (await connection.call(connection.prepared_model.ConfigureExecutionBurst, configure)).burst
    local = connection.local if ends.are_base_types else None
    lane = await open_lane(local.doors, BURST_DEPTH) if local is not None else None
    return StreamLine(connection, burst, ends) if lane is None else LaneLine(lane, burst, ends, connection)


class Burst:
    """A burst; open it as an asynchronous context manager, or await it. Use it from its event loop."""

    def __init__(self, open_: Callable[[], Awaitable[Line]], ends: Ends) -> None:
        self._open = open_
        self._ends = ends

    @overload
    async def execute(self, inputs: BufferInputs, *, outputs: None = None, **how: Unpack[How]) -> Outputs: ...

    @overload
    async def execute(self, inputs: BufferInputs, *, outputs: Targets, **how: Unpack[How]) -> BufferOutputs: ...

    async def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> AnyOutputs:
        """As `nnhal.burst.Burst.execute`."""
        return await self._line.execute(self._waiting(inputs, outputs), deadline, measure_timing)

    @overload
    def submit(self, inputs: BufferInputs, *, outputs: None = None, **how: Unpack[How]) -> "asyncio.Task[Outputs]": ...

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: Targets, **how: Unpack[How]
    ) -> "asyncio.Task[BufferOutputs]": ...

    def submit(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> "asyncio.Task[Any]":
        """Starts an execution; executions run in the order of the calls. Inputs must not change until it is done."""
        return asyncio.create_task(
            self.execute(inputs, outputs=outputs, deadline=deadline, measure_timing=measure_timing)
        )

    def _waiting(self, inputs: BufferInputs, outputs: Targets | None) -> Sent:
        future = asyncio.get_running_loop().create_future()
        return Waiting.of(self._ends, inputs, outputs, future)

    def keep(self, array: AnyArray) -> AnyArray:
        """A read-only copy of an input; given as it is, its bytes travel with its first use alone."""
        return self._line.keep(array)

    async def release(self, array: AnyArray) -> None:
        """Forgets an array of `keep`."""
        await self._line.release(array)

    async def close(self) -> None:
        """Waits for what is on its way, then ends the burst."""
        await self._line.close()

    def __await__(self) -> Generator[object, None, "Burst"]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "Burst":
        self._line: Line = await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
