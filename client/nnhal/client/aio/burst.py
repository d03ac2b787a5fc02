"""Bursts for asyncio: many executions of one prepared model, with less work for each.

async with prepared.burst() as burst:
    outputs = await burst.execute([image])
    tasks = [burst.submit([image]) for image in images]

Hand-written: the burst opens in `async with`, and `submit` makes tasks. `nnhal.client.sync.burst` has futures instead.
"""

from __future__ import annotations

import asyncio
from typing import Any, Unpack, overload

from nnhal.client.aio.burst_transport import RenewableBurst
from nnhal.client.aio.reconnect import ReconnectingSession
from nnhal.client.aio.result_queue import Pending, new_result
from nnhal.client.aio.reusable import RenewableModel
from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.buffered_execution import (
    AnyOutputs,
    BufferInputs,
    BufferOutputs,
    ExecuteOptions,
    OutputBuffers,
)
from nnhal.client.core.burst import PendingExecution
from nnhal.client.core.handles import AsyncOpenable, description
from nnhal.types import AnyArray


class Burst(AsyncOpenable):
    """Burst of executions. Open it with `async with` or await it, and use it from its event loop.

    If its session is lost, it is opened again, and executions without buffers are repeated. It keeps the prepared model
    alive.
    """

    def __init__(self, session: ReconnectingSession, model: RenewableModel, io: ModelIO) -> None:
        self._io = io
        self._burst = RenewableBurst(session, model, io)

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
        execution: Pending = PendingExecution.of(self._io, inputs, outputs, new_result(), deadline, measure_timing)
        return await self._burst.execute(execution)

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[ExecuteOptions]
    ) -> asyncio.Task[Outputs]: ...

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[ExecuteOptions]
    ) -> asyncio.Task[BufferOutputs]: ...

    def submit(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> asyncio.Task[Any]:
        """Start an execution. Executions run in the order of the calls. Inputs must not change until it is done."""
        return asyncio.create_task(
            self.execute(inputs, outputs=outputs, deadline=deadline, measure_timing=measure_timing)
        )

    def keep(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy of an input. The bytes of the copy are sent only once, with its first use."""
        return self._burst.cached_inputs.add(array)

    async def release(self, array: AnyArray) -> None:
        """Release an array of `keep`."""
        await self._burst.release(array)

    async def open(self) -> None:
        """Open the burst.

        Raises:
            HalError: see `PreparedModel.burst`.
        """
        await self._burst.open()

    async def close(self) -> None:
        """Wait for the executions in progress, then close the burst."""
        await self._burst.close()

    def __repr__(self) -> str:
        return description(self, self._io.description)
