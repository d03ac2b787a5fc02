# Generated from aio/prepared_model.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Prepared models of a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack, overload

from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.client.core.arguments import nanoseconds
from nnhal.client.core.arrays import CallInput, Inputs, Outputs, call_inputs
from nnhal.client.core.buffered_execution import (
    AnyOutputs,
    BufferedExecution,
    BufferInputs,
    BufferOutputs,
    ModelOptions,
    OutputBuffers,
    plain_inputs,
)
from nnhal.client.core.buffers import allocation
from nnhal.client.core.cache import NO_DEADLINE, PreparationSpec, SharedDeadline
from nnhal.client.core.fences import FencedInputs, FencedLaunch
from nnhal.client.core.handles import Closeable
from nnhal.client.core.prepared_model import (
    PreparedModelBase,
    RemoteModel,
    empty_execute_request,
    memory_handles,
)
from nnhal.client.core.profile import ExecutionProfile
from nnhal.client.core.streams import StreamIO
from nnhal.client.names.named_spec import NamedSpec
from nnhal.client.sync.buffer import Buffer
from nnhal.client.sync.burst import Burst
from nnhal.client.sync.concurrency import Lock
from nnhal.client.sync.connection import Connection
from nnhal.client.sync.fence import ExecutionFence, Fence, execute_fenced
from nnhal.client.sync.grpc_calls import PreparationCall
from nnhal.client.sync.plain_execution import PlainExecutor
from nnhal.client.sync.preparation import prepare
from nnhal.client.sync.reconnect import ReconnectingSession
from nnhal.client.sync.reusable import Execution
from nnhal.client.sync.stream import DeviceStates, Stream
from nnhal.errors import HalError
from nnhal.types import Model
from nnhal.v1 import device_pb2


class PreparedModel(PreparedModelBase, Closeable):
    """Model that is ready to run, any number of times at once.

    The service releases it when this object is closed or collected.
    """

    def __init__(
        self,
        session: ReconnectingSession,
        spec: PreparationSpec | NamedSpec,
        connection: Connection,
        notify: device_pb2.Notify,
    ) -> None:
        super().__init__(notify, spec.model, spec.device, connection.discard)
        self._session = session
        self._spec = spec
        self._remote = RemoteModel(connection, notify.prepared_model)
        self._renewing = Lock()
        self._executor = PlainExecutor(self._io, self._templates)

    def __call__(self, *values: CallInput, **named: ArrayLike | None) -> Outputs:
        """Run the model with one value per input, by position or by name, as `execute` does."""
        return self.execute(call_inputs(values, named))

    @overload
    def execute(self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[ModelOptions]) -> Outputs: ...

    @overload
    def execute(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[ModelOptions]
    ) -> BufferOutputs: ...

    def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
        loop_timeout: float | None = None,
    ) -> Outputs | BufferOutputs:
        """Run the model.

        Args:
            inputs: one array per input, by position or by name; None omits an optional input. An array has the dtype
                and the shape of its operand. Lists and numbers are converted. A buffer may replace an array.
            outputs: buffers for outputs, by position or by name. Other outputs are returned as arrays.
            deadline: seconds from now.
            measure_timing: whether to fill `timing` of the result.
            loop_timeout: timeout of each WHILE in seconds, at most 15. The default is 2 s. An execution with a loop
                timeout takes the slower way of executions with buffers.

        Returns:
            one array per output, or the buffer that the output was written to.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand; MISSED_DEADLINE_*; or the execution failed.
        """
        plain = plain_inputs(inputs, outputs)
        if plain is None:  # never repeated: buffers are lost with their session
            execution = BufferedExecution(self._io, inputs, outputs)
            return self.execute_buffered(self.current(), execution, deadline, measure_timing, loop_timeout)
        remote, end = self._remote, NO_DEADLINE if deadline is None else SharedDeadline(deadline)
        if loop_timeout is not None:
            return self._execute_with_loop_timeout(plain, end, measure_timing, loop_timeout)
        try:
            return self._executor.execute(remote, plain, deadline, measure_timing)
        except HalError as error:
            if not self._session.is_lost(error, remote.connection):
                raise
            return self._session.repeat(
                lambda connection: self._execute_on(connection, plain, end, measure_timing),
                end,
                remote.connection,
                error.with_traceback(None),
            )

    def _execute_on(
        self, connection: Connection, inputs: Inputs, deadline: SharedDeadline, measure_timing: bool
    ) -> Outputs:
        remote = self.prepare_on(connection, deadline)
        return self._executor.execute(remote, inputs, deadline.remaining, measure_timing)

    def _execute_with_loop_timeout(
        self, inputs: Inputs, end: SharedDeadline, measure_timing: bool, loop_timeout: float
    ) -> AnyOutputs:
        def execute_on(connection: Connection) -> AnyOutputs:
            remote = self.prepare_on(connection, end)
            execution = BufferedExecution(self._io, inputs, None)
            return self.execute_buffered(remote, execution, end.remaining, measure_timing, loop_timeout)

        return self._session.repeat(execute_on, end)

    @property
    def model(self) -> Model:
        """The model that was prepared. One that the service has by name comes without its operations."""
        return self._spec.model

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of classes that the service has for a model by name, or ()."""
        return self._spec.labels if isinstance(self._spec, NamedSpec) else ()

    def close(self) -> None:
        """Release the model on the service, and its own device if it has one. Executions in progress finish."""
        super().close()
        if self.owner is not None:
            self.owner.close()

    def belongs_to(self, session: ReconnectingSession) -> bool:
        """Return whether the model was prepared by the device with a session."""
        return self._session is session

    def prepare_on(self, connection: Connection, deadline: SharedDeadline) -> RemoteModel[Connection]:
        """Return the model on a connection, and prepare it there if it is not yet.

        Raises:
            HalError: the preparation failed; SESSION_LOST: the model has been closed, or its constants have changed.
        """
        if self._remote.connection is connection:
            return self._remote
        with self._renewing:
            if self._remote.connection is not connection:
                notify = prepare(connection, self._spec, PreparationCall(), deadline, again=True)
                self._rebind(notify, connection.discard)
                self._remote = RemoteModel(connection, notify.prepared_model)
            return self._remote

    def current(self) -> RemoteModel[Connection]:
        """Return the model on the current connection, for work that is not repeated."""
        connection = self._session.connection
        if self._remote.connection is connection:
            return self._remote
        return self.prepare_on(connection, NO_DEADLINE)

    def execute_buffered(
        self,
        remote: RemoteModel[Connection],
        execution: BufferedExecution,
        deadline: float | None,
        measure_timing: bool,
        loop_timeout: float | None = None,
    ) -> AnyOutputs:
        """Run the model in one whole request over gRPC, with buffers or a loop timeout."""
        connection, handle = remote
        execution.require_buffers()
        with execution.clearing_on_error():
            with connection.uploaded(execution.request.pools) as encode_pool:
                message = empty_execute_request(connection.session, handle, deadline, measure_timing)
                message.request.CopyFrom(wire.request_message(execution.request, encode_pool))
                if loop_timeout is not None:
                    message.loop_timeout_duration_ns = nanoseconds(loop_timeout, "loop_timeout")
                response = connection.call(connection.prepared_model.ExecuteSynchronously, message)
            return execution.read(response, connection.take_memories(memory_handles(response.returned)))

    def profile(self, inputs: Inputs, *, deadline: float | None = None) -> ExecutionProfile:
        """Run the model once and measure the parts of the work, which makes it slower.

        The first profiled execution also prepares the backends for it. `nnhal.profiling.trace` writes traces.

        Args:
            inputs: as for `execute`, without buffers.
            deadline: seconds from now.

        Raises:
            HalError: see `execute`.
        """
        end = SharedDeadline(deadline)

        def profile_on(connection: Connection) -> ExecutionProfile:
            return self._executor.profile(self.prepare_on(connection, end), inputs, end.remaining)

        return self._session.repeat(profile_on, end)

    @overload
    def execute_fenced(
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
    def execute_fenced(
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

    def execute_fenced(
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
        if not launch.is_repeatable:
            return execute_fenced(*self.current(), launch)

        def launch_on(connection: Connection) -> ExecutionFence[Any]:
            return execute_fenced(*self.prepare_on(connection, NO_DEADLINE), launch)

        return self._session.repeat(launch_on, NO_DEADLINE)

    @overload
    def reusable(
        self, inputs: BufferInputs, *, outputs: None = None, measure_timing: bool = False
    ) -> Execution[Outputs]: ...

    @overload
    def reusable(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, measure_timing: bool = False
    ) -> Execution[BufferOutputs]: ...

    def reusable(
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
        return Execution(self._session, self, self._io, inputs, outputs, measure_timing).open()

    def stream(self) -> Stream:
        """Return a stream: step-by-step executions of a model with states. Use it as a context manager.

        Raises:
            HalError: INVALID_ARGUMENT: the model has no states.
        """
        return Stream(DeviceStates(self, StreamIO(self._io, self.states)))

    def allocate_state(self, connection: Connection, input_: int, output: int) -> Buffer:
        """Allocate a buffer that serves as an input and as an output, given by their positions.

        Raises:
            HalError: RESOURCE_EXHAUSTED_*; or the session is lost.
        """
        roles = [(self, input_)], [(self, output)]
        new = allocation(connection.session, self._device, *roles, ())
        return Buffer(connection, connection.call(connection.device.Allocate, new.request), new.operand)

    def renew(self) -> None:
        """Connect and prepare the model again if its session is lost.

        Raises:
            DeadObjectError: the service does not come back in time.
        """
        connection = self._session.reconnect(self._remote.connection, NO_DEADLINE)
        self.prepare_on(connection, NO_DEADLINE)

    def burst(self) -> Burst:
        """Return a burst: many executions with less work for each. Use it as a context manager.

        The synchronous client opens it here, and the asyncio client when the context is entered or the burst awaited.

        Raises:
            HalError: the model has been closed, or the session has too many bursts.
        """
        return Burst(self._session, self, self._io)
