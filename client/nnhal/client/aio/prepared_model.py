"""Prepared models of a device."""

from collections.abc import Iterable
from typing import Any, Unpack, overload

from nnhal import wire
from nnhal.client.aio.buffer import Buffer
from nnhal.client.aio.burst import Burst, new_burst
from nnhal.client.aio.concurrency import Lock
from nnhal.client.aio.connection import Connection
from nnhal.client.aio.fence import ExecutionFence, Fence, execute_fenced
from nnhal.client.aio.plain_execution import PlainExecutor
from nnhal.client.aio.preparation import prepare_cached
from nnhal.client.aio.preparation_call import PreparationCall
from nnhal.client.aio.reconnect import ReconnectingSession
from nnhal.client.aio.reusable import Execution
from nnhal.client.aio.stream import Stream
from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.buffered_execution import (
    BufferedExecution,
    BufferInputs,
    BufferOutputs,
    ExecuteOptions,
    OutputBuffers,
    plain_inputs,
)
from nnhal.client.core.buffers import allocation
from nnhal.client.core.cache import PreparationSpec, SharedDeadline
from nnhal.client.core.fences import FencedInputs, FencedLaunch
from nnhal.client.core.handles import AsyncCloseable
from nnhal.client.core.prepared_model import (
    ModelDescription,
    PreparedModelBase,
    RemoteModel,
    execute_request,
    memory_handles,
)
from nnhal.client.core.profile import ExecutionProfile
from nnhal.client.core.streams import StreamIO
from nnhal.errors import HalError
from nnhal.v1 import device_pb2


class PreparedModel(PreparedModelBase, AsyncCloseable):
    """Model that is ready to run, any number of times at once.

    The service releases it when this object is closed or collected.

    Args:
        connection: the connection on which the model was prepared.
        notify: the result of the preparation.
        model: parts of the model that do not travel.
        renewal: the session and the arguments with which to prepare the model again after a restart of the service;
            None if it is lost then.
    """

    def __init__(
        self,
        connection: Connection,
        notify: device_pb2.Notify,
        model: ModelDescription,
        renewal: tuple[ReconnectingSession, PreparationSpec] | None = None,
    ) -> None:
        super().__init__(notify, model, connection.discard)
        self._remote = RemoteModel(connection, notify.prepared_model)
        self._renewal = renewal
        self._renewing = Lock()
        self._executor = PlainExecutor(self._io, self._templates)

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
    ) -> Outputs | BufferOutputs:
        """Run the model.

        Args:
            inputs: one array per input, by position or by name; None omits an optional input. An array has the dtype
                and the shape of its operand. Lists and numbers are converted. A buffer may replace an array.
            outputs: buffers for outputs, by position or by name. Other outputs are returned as arrays.
            deadline: seconds from now.
            measure_timing: whether to fill `timing` of the result.

        Returns:
            one array per output, or the buffer that the output was written to.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand; MISSED_DEADLINE_*; or the execution failed.
        """
        plain = plain_inputs(inputs, outputs)
        if plain is None:  # never retried: buffers are lost with their session
            execution = BufferedExecution(self._io, inputs, outputs)
            return await self._execute_buffered(execution, deadline, measure_timing)
        if self._renewal is None:
            return await self._executor.execute(self._remote, plain, deadline, measure_timing)
        return await self._execute_with_retries(*self._renewal, plain, deadline, measure_timing)

    async def _execute_with_retries(
        self,
        session: ReconnectingSession,
        spec: PreparationSpec,
        inputs: Inputs,
        deadline: float | None,
        measure_timing: bool,
    ) -> Outputs:
        """Execute, and retry on the next connection if one is lost. Executions are idempotent: they only compute."""
        end = SharedDeadline(deadline)
        connection, retries = self._remote.connection, 0
        while True:
            try:
                remote = await self._remote_on(connection, spec, end)
                return await self._executor.execute(remote, inputs, end.remaining, measure_timing)
            except HalError as error:
                if not session.should_retry(error, connection, retries):
                    raise
            connection, retries = await session.reconnect(connection, end), retries + 1

    async def _remote_on(
        self, connection: Connection, spec: PreparationSpec, deadline: SharedDeadline
    ) -> RemoteModel[Connection]:
        """Return the model on a connection, and prepare it there if it is not yet."""
        if self._remote.connection is connection:
            return self._remote
        async with self._renewing:
            if self._remote.connection is not connection:
                notify = await prepare_cached(connection, spec, PreparationCall(), deadline, again=True)
                self._rebind(notify, connection.discard)
                self._remote = RemoteModel(connection, notify.prepared_model)
            return self._remote

    async def _execute_buffered(
        self, execution: BufferedExecution, deadline: float | None, measure_timing: bool
    ) -> Outputs | BufferOutputs:
        connection, handle = self._remote
        with execution.clearing_on_error():
            async with connection.uploaded(execution.request.pools) as encode_pool:
                request = wire.request_message(execution.request, encode_pool)
                message = execute_request(connection.session, handle, request, deadline, measure_timing)
                response = await connection.call(connection.prepared_model.ExecuteSynchronously, message)
            return execution.read(response, await connection.take_memories(memory_handles(response.returned)))

    async def profile(self, inputs: Inputs, *, deadline: float | None = None) -> ExecutionProfile:
        """Run the model once and measure the parts of the work, which makes it slower. Never retried.

        The first profiled execution also prepares the backends for it. `nnhal.profiling.trace` writes traces.

        Args:
            inputs: as for `execute`, without buffers.
            deadline: seconds from now.

        Raises:
            HalError: see `execute`.
        """
        return await self._executor.profile(self._remote, inputs, deadline)

    @overload
    async def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        outputs: None = None,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
        profile: bool = False,
    ) -> ExecutionFence[Outputs]: ...

    @overload
    async def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        outputs: OutputBuffers,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
        profile: bool = False,
    ) -> ExecutionFence[BufferOutputs]: ...

    async def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        outputs: OutputBuffers | None = None,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
        profile: bool = False,
    ) -> ExecutionFence[Any]:
        """Launch an execution, which begins when all fences are signalled.

        Args:
            inputs: as for `execute`. An output of another fenced execution may replace an array; the execution then
                waits for that one. Executions that write to an input buffer must be in `wait_for`.
            outputs: as for `execute`. A buffer has its value when the execution has succeeded; a failed execution
                leaves it uninitialized.
            wait_for: fences to wait for. If one of them ends in error, so does this execution.
            deadline: seconds from now.
            duration: seconds from the moment when all fences are signalled.
            measure_timing: whether to fill `timing`.
            profile: whether to fill `spans`, which makes the execution slower.

        Returns:
            a fence. Its `result` waits for the outputs and fetches them.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand, a fence is in error, or the shape of an
                output is not fixed; MISSED_DEADLINE_*; RESOURCE_EXHAUSTED_*: a limit of the session.
        """
        launch = FencedLaunch(self._io, inputs, outputs, wait_for, deadline, duration, measure_timing, profile)
        return await execute_fenced(*self._remote, launch)

    @overload
    async def reusable(
        self, inputs: BufferInputs, *, outputs: None = None, measure_timing: bool = False
    ) -> Execution[Outputs]: ...

    @overload
    async def reusable(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, measure_timing: bool = False
    ) -> Execution[BufferOutputs]: ...

    async def reusable(
        self, inputs: BufferInputs, *, outputs: OutputBuffers | None = None, measure_timing: bool = False
    ) -> Execution[Any]:
        """Create an execution to be run many times. Its inputs stay on the service and can be changed in place.

        Args:
            inputs: as for `execute`. Their shapes cannot change. Each run reads the current value of a buffer.
            outputs: as for `execute`.
            measure_timing: whether to measure all runs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand; RESOURCE_EXHAUSTED_*.
        """
        return await Execution(*self._remote, self._io, inputs, outputs, measure_timing).open()

    def stream(self) -> Stream:
        """Return a stream: step-by-step executions of a model with states. Use it as a context manager.

        Raises:
            HalError: INVALID_ARGUMENT: the model has no states.
        """
        return Stream(self, StreamIO(self._io, self.states))

    async def allocate_state(self, input_: int, output: int) -> Buffer:
        """Allocate a buffer that serves as an input and as an output, given by their positions.

        Raises:
            HalError: RESOURCE_EXHAUSTED_*; or the session is lost.
        """
        connection = self._remote.connection
        roles = [(self, input_)], [(self, output)]
        new = allocation(connection.session, self._description.device, *roles, ())
        return Buffer(connection, await connection.call(connection.device.Allocate, new.request), new.operand)

    async def renew(self) -> None:
        """Connect and prepare the model again if its session is lost and the model is in the cache.

        Raises:
            DeadObjectError: the service does not come back in time.
        """
        if self._renewal is not None:
            (session, spec), end = self._renewal, SharedDeadline(None)
            await self._remote_on(await session.reconnect(self._remote.connection, end), spec, end)

    def burst(self) -> Burst:
        """Return a burst: many executions with less work for each. Use it as a context manager.

        The synchronous client opens it here, and the asyncio client when the context is entered or the burst awaited.

        Raises:
            HalError: the model has been closed, or the session has too many bursts.
        """
        return new_burst(self._remote, self._io, self)
