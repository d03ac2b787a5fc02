"""Bursts for asyncio: many executions of one prepared model, with less work for each.

async with prepared.burst() as burst:
    outputs = await burst.execute([image])
    tasks = [burst.submit([image]) for image in images]

Hand-written: the burst opens in `async with`, and `submit` makes tasks. `nnhal.client.sync.burst` has futures instead.
"""

import asyncio
from collections.abc import Generator
from typing import Any, Unpack, overload

from nnhal.client.aio.burst_transport import BurstTransport, Pending, open_burst_transport
from nnhal.client.aio.connection import Connection
from nnhal.client.aio.reconnect import ReconnectingSession
from nnhal.client.aio.reusable import RenewableModel
from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.buffered_execution import (
    AnyOutputs,
    BufferInputs,
    BufferOutputs,
    ExecuteOptions,
    OutputBuffers,
)
from nnhal.client.core.burst import CachedInputs, PendingExecution, burst_closed_error
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.core.handles import description
from nnhal.errors import HalError
from nnhal.types import AnyArray


def new_burst(session: ReconnectingSession, model: RenewableModel, io: ModelIO) -> "Burst":
    """Return a burst to open. It keeps the prepared model alive."""
    return Burst(session, model, io)


class Burst:
    """Burst of executions. Open it with `async with` or await it, and use it from its event loop.

    If its session is lost, it is opened again, and executions without buffers are repeated.
    """

    def __init__(self, session: ReconnectingSession, model: RenewableModel, io: ModelIO) -> None:
        self._session = session
        self._model = model
        self._io = io
        self._cached_inputs = CachedInputs()
        self._transport: BurstTransport
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @overload
    async def execute(
        self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[ExecuteOptions]
    ) -> Outputs: ...

    @overload
    async def execute(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[ExecuteOptions]
    ) -> BufferOutputs: ...

    async def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> AnyOutputs:
        """Run the model. Arguments, result and errors are those of `PreparedModel.execute`."""
        execution = self._pending(inputs, outputs)
        connection = self._connection
        end = NO_DEADLINE if deadline is None else SharedDeadline(deadline)
        try:
            return await self._transport.execute(execution, deadline, measure_timing)
        except HalError as error:
            assert connection is not None
            is_repeatable = execution.buffered is None and not self._closed
            if not (is_repeatable and self._session.is_lost(error, connection)):
                raise
            return await self._session.repeat(
                lambda connection: self._execute_on(connection, inputs, end, measure_timing),
                end,
                connection,
                error.with_traceback(None),
            )

    async def _execute_on(
        self, connection: Connection, inputs: BufferInputs, deadline: SharedDeadline, measure_timing: bool
    ) -> AnyOutputs:
        transport = await self._open_on(connection, deadline)
        return await transport.execute(self._pending(inputs, None), deadline.remaining, measure_timing)

    def _pending(self, inputs: BufferInputs, outputs: OutputBuffers | None) -> Pending:
        return PendingExecution.of(self._io, inputs, outputs, asyncio.get_running_loop().create_future())

    async def _open_on(self, connection: Connection, deadline: SharedDeadline) -> BurstTransport:
        """Return the transport of the burst on a connection, and open it there if it is not.

        Raises:
            HalError: the model cannot be prepared there; the service refuses the burst; or the burst has been closed.
        """
        async with self._opening:
            if self._closed:
                raise burst_closed_error()
            if self._connection is not connection or self._transport.broken:
                last = self._transport if self._connection is not None else None
                remote = await self._model.prepare_on(connection, deadline)
                self._transport = await open_burst_transport(*remote, self._io, self._cached_inputs)
                self._connection = connection
                if last is not None:  # executions that a stopping service still runs go on
                    self._closing.add(task := asyncio.create_task(last.close()))
                    task.add_done_callback(self._closing.discard)
            return self._transport

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[ExecuteOptions]
    ) -> "asyncio.Task[Outputs]": ...

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[ExecuteOptions]
    ) -> "asyncio.Task[BufferOutputs]": ...

    def submit(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> "asyncio.Task[Any]":
        """Start an execution. Executions run in the order of the calls. Inputs must not change until it is done."""
        return asyncio.create_task(
            self.execute(inputs, outputs=outputs, deadline=deadline, measure_timing=measure_timing)
        )

    def keep(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy of an input. The bytes of the copy are sent only once, with its first use."""
        return self._cached_inputs.add(array)

    async def release(self, array: AnyArray) -> None:
        """Release an array of `keep`."""
        identifier = self._cached_inputs.remove(array)
        if identifier >= 0:
            await self._transport.release(identifier)

    async def close(self) -> None:
        """Wait for the executions in progress, then close the burst."""
        self._closed = True
        async with self._opening:
            await self._transport.close()
            await asyncio.gather(*self._closing)

    def __await__(self) -> Generator[object, None, "Burst"]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "Burst":
        await self._session.repeat(lambda connection: self._open_on(connection, NO_DEADLINE), NO_DEADLINE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return description(self, self._io.description)
