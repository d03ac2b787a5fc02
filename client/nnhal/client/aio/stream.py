"""Streams: step-by-step executions of a model with states, which stay on the device between the steps.

async with prepared.stream() as stream:
    for window in windows:
        (score,) = await stream.step([window])
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from nnhal.client.aio.buffer import Buffer
from nnhal.client.aio.concurrency import Lock, open_channel
from nnhal.client.aio.connection import Connection
from nnhal.client.aio.shm_transport import receive_result, take_large_outputs
from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.buffered_execution import AnyOutputs, BufferedExecution
from nnhal.client.core.definitions import (
    MAX_DEFINITIONS,
    Arrays,
    Form,
    RequestDefinition,
    define_request,
    fits_run,
    form_of,
)
from nnhal.client.core.handles import AsyncCloseable, release_with
from nnhal.client.core.prepared_model import RemoteModel, memory_handles
from nnhal.client.core.session import lost_error
from nnhal.client.core.streams import StreamIO, lost_stream
from nnhal.errors import DeadObjectError, HalError, SessionLostError
from nnhal.lru import LruDict
from nnhal.v1 import prepared_model_pb2

if TYPE_CHECKING:
    from nnhal.client.shm.channel import ShmChannel
    from nnhal.client.shm.result import DefinedRequest


class States(Protocol):
    """States of a stream, and the executions that read and write them."""

    async def step(self, inputs: Inputs, deadline: float | None, measure_timing: bool) -> Outputs:
        """Run the model once, see `Stream.step`."""

    async def release(self) -> None:
        """Free the states. The next step begins with the initial ones."""

    async def renew(self) -> None:
        """Connect and prepare the model again if its session is lost."""


class Stream(AsyncCloseable):
    """Stream of executions of one prepared model. Each step starts with the states that the previous one left.

    Steps run one after the other. The states are lost when the service restarts; `reset` begins anew.
    """

    def __init__(self, states: States) -> None:
        self._states = states
        self._lock = Lock()
        self._is_lost = False

    async def step(self, inputs: Inputs, *, deadline: float | None = None, measure_timing: bool = False) -> Outputs:
        """Run the model once. If it fails, the states remain what they were.

        Args:
            inputs: one array per input of the model that is not a state, by position or by name.
            deadline: seconds from now.
            measure_timing: whether to fill `timing` of the result.

        Returns:
            one array per output that is not a state.

        Raises:
            SessionLostError: the states were lost with the session. Call `reset`, or open another stream.
            HalError: an input does not match its operand; MISSED_DEADLINE_*; or the execution failed.
        """
        async with self._lock:
            if self._is_lost:
                raise lost_stream()
            try:
                return await self._states.step(inputs, deadline, measure_timing)
            except (SessionLostError, DeadObjectError) as error:
                self._is_lost = True
                raise lost_stream() from error

    async def reset(self) -> None:
        """Return to the initial states. After a restart of the service, connect to it again."""
        async with self._lock:
            await self._states.release()
            await self._states.renew()
            self._is_lost = False

    async def close(self) -> None:
        """Release the states."""
        async with self._lock:
            await self._states.release()


class StatefulModel(Protocol):
    """Prepared model, as a stream uses it."""

    async def current(self) -> RemoteModel[Connection]:
        """Return the model on the current connection."""

    async def execute_buffered(
        self,
        remote: RemoteModel[Connection],
        execution: BufferedExecution,
        deadline: float | None,
        measure_timing: bool,
    ) -> AnyOutputs:
        """Run the model with buffers, in one whole request over gRPC."""

    async def allocate_state(self, connection: Connection, input_: int, output: int) -> Buffer:
        """Allocate a buffer for a state, given the positions of its input and its output."""

    async def renew(self) -> None:
        """Connect and prepare the model again if its session is lost."""


class DeviceStates:
    """States in driver-managed buffers, two for each state: a step reads one and writes the other.

    The first step is a whole request. The others are defined, one for each direction, and then take one message each:
    a packet of a channel of its own on the same machine, or a Run over gRPC.
    """

    def __init__(self, model: StatefulModel, io: StreamIO) -> None:
        self._model = model
        self._io = io
        self._remote: RemoteModel[Connection] | None = None
        self._channel: ShmChannel | None = None
        self._disconnect: Callable[[], object] = lambda: None
        self._current: Sequence[Buffer] = ()  # none before the first step
        self._spare: Sequence[Buffer] = ()
        # defined steps, by their spare buffers and the shapes of the inputs
        self._local_steps: LruDict[Form, DefinedRequest] = LruDict(MAX_DEFINITIONS)
        self._grpc_steps: LruDict[Form, tuple[BufferedExecution, RequestDefinition | None]] = LruDict(MAX_DEFINITIONS)

    async def step(self, inputs: Inputs, deadline: float | None, measure_timing: bool) -> Outputs:
        """Run the model once."""
        arrays = self._io.visible.arrays(inputs)
        remote = self._remote if self._spare and self._remote is not None else await self._open()
        if remote.connection.lost:
            raise lost_error()
        try:
            outputs = await self._execute(remote, arrays, deadline, measure_timing)
        except HalError:
            raise
        except BaseException:
            self._leave_spare()
            raise
        self._current, self._spare = self._spare, self._current
        return outputs

    async def _open(self) -> RemoteModel[Connection]:
        """Allocate the buffers that are missing, and open a channel if the service is on this machine."""
        remote = self._remote = self._remote or await self._model.current()
        if self._channel is None and remote.connection.shm is not None and self._io.io.fits_shared_memory:
            self._channel = await open_channel(remote.connection.shm.factory, 1)
            if self._channel is not None:
                self._disconnect = release_with(self, self._channel.connection.close)
        self._spare = [await self._model.allocate_state(remote.connection, *pair) for pair in self._io.state_positions]
        return remote

    async def _execute(
        self, remote: RemoteModel[Connection], arrays: Arrays, deadline: float | None, measure: bool
    ) -> Outputs:
        outputs = None
        if self._current:
            form = form_of(self._spare[0].token, arrays, measure_timing=measure)
            if self._channel is not None:
                outputs = await self._run_local(self._channel, remote, form, arrays, deadline)
            else:
                outputs = await self._run(remote, form, arrays, deadline)
        if outputs is None:
            execution = self._execution(arrays)
            results = await self._model.execute_buffered(remote, execution, deadline, measure)
            outputs = self._io.without_states(results)
        return outputs

    async def _run_local(
        self,
        channel: "ShmChannel",
        remote: RemoteModel[Connection],
        form: Form,
        arrays: Arrays,
        deadline: float | None,
    ) -> Outputs | None:
        """Run a step over the channel. Return None if nothing was sent."""
        connection, handle = remote
        await connection.flush_releases()
        try:
            if form not in self._local_steps:
                request = _without_states(
                    self._io, channel.define_buffered(handle, self._io.io, self._execution(arrays))
                )
                if (evicted := self._local_steps.put(form, request)) is not None:
                    channel.forget(evicted[1])
            request = self._local_steps.use(form)
            channel.run(request, arrays, deadline, bool(form[1]))
        except OSError:
            self._close_channel()
            return None
        try:
            result = await receive_result(channel)
            memories = await take_large_outputs(channel, result, self._io.visible, connection)
        except HalError:
            self._forget(channel, form)  # the definition may have failed
            raise
        if memories:  # the next definition has room for them
            self._forget(channel, form)
        return result.plain_outputs(self._io.visible, memories)

    def _forget(self, channel: "ShmChannel", form: Form) -> None:
        with suppress(OSError):  # the next step finds the connection broken
            channel.forget(self._local_steps.pop(form))

    async def _run(
        self, remote: RemoteModel[Connection], form: Form, arrays: Arrays, deadline: float | None
    ) -> Outputs | None:
        """Run a step in a message with its values. Return None if it must be a whole request."""
        connection = remote.connection
        if form not in self._grpc_steps:
            self._grpc_steps.put(form, await self._define(remote, form, arrays))
        execution, definition = self._grpc_steps[form]
        if definition is None:
            return None
        encoded = await connection.call(connection.run, definition.encode(arrays, deadline))
        outputs = definition.decode(encoded)
        if outputs is None:
            result = prepared_model_pb2.RunResponse.FromString(encoded).result
            memories = await connection.take_memories(memory_handles(result.returned))
            outputs = self._io.without_states(execution.read(result, memories))
        return outputs

    async def _define(
        self, remote: RemoteModel[Connection], form: Form, arrays: Arrays
    ) -> tuple[BufferedExecution, RequestDefinition | None]:
        connection, handle = remote
        execution = self._execution(arrays)
        if not fits_run(arrays):
            return execution, None
        try:
            request = define_request(connection.session, handle, execution.request, measure_timing=bool(form[1]))
            response = await connection.call(connection.prepared_model.Define, request)
        except HalError:  # an older service, or a limit; the execution itself reports what concerns it
            return execution, None
        stored = self._io.stored_outputs
        return execution, RequestDefinition(self._io.visible, connection, arrays, response, stored)

    def _execution(self, arrays: Arrays) -> BufferedExecution:
        """Return a step from the current states to the spare buffers."""
        inputs = self._io.with_states(arrays, self._current or self._io.initial)
        return BufferedExecution(self._io.io, inputs, self._io.state_outputs(self._spare))

    def _close_channel(self) -> None:
        self._disconnect()
        self._channel = None
        self._local_steps.clear()

    def _leave_spare(self) -> None:
        """Replace the spare buffers before the next step: the service may still run one that writes to them."""
        self._close_channel()
        self._grpc_steps.clear()
        self._spare = ()

    async def release(self) -> None:
        """Free the buffers."""
        for buffer in (*self._current, *self._spare):
            await buffer.close()
        self._leave_spare()
        self._current, self._remote = (), None

    async def renew(self) -> None:
        """Connect and prepare the model again if its session is lost."""
        await self._model.renew()


def _without_states(io: StreamIO, request: "DefinedRequest") -> "DefinedRequest":
    """Return a request with the views of the inputs and outputs that are not states."""
    inputs, outputs = io.without_state_inputs(request.inputs), io.without_state_outputs(request.outputs)
    return replace(request, inputs=inputs, outputs=outputs, stored=io.stored_outputs)
