# Generated from aio/reusable.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Reusable executions: inputs stay on the service and are changed in place.

execution = prepared.reusable({"image": image, "threshold": 0.5})
for image in images:
    execution.write({"image": image})
    outputs = execution.run()
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, cast

from numpy.typing import ArrayLike

from nnhal.client.core.arrays import ModelIO
from nnhal.client.core.buffered_execution import BufferInputs, OutputBuffers
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.core.fences import R
from nnhal.client.core.handles import Closeable
from nnhal.client.core.prepared_model import RemoteModel, memory_handles
from nnhal.client.core.reusable import ReusableExecutionBase
from nnhal.client.sync.concurrency import Lock
from nnhal.client.sync.connection import Connection
from nnhal.client.sync.fence import ExecutionFence, Fence
from nnhal.client.sync.reconnect import ReconnectingSession
from nnhal.v1 import types_pb2


class RenewableModel(Protocol):
    """A prepared model that can be prepared again."""

    def prepare_on(self, connection: Connection, deadline: SharedDeadline) -> RemoteModel[Connection]:
        """Return the model on a connection, and prepare it there if it is not yet."""


class Execution(ReusableExecutionBase[Connection], Generic[R], Closeable):
    """Reusable execution of a prepared model. At most one `run` and one `run_fenced` may be in progress.

    The service releases it when this object is closed or collected. If its session is lost, it is created again with
    the inputs as they were written last, unless it uses buffers.
    """

    def __init__(
        self,
        session: ReconnectingSession,
        model: RenewableModel,
        io: ModelIO,
        inputs: BufferInputs,
        outputs: OutputBuffers | None,
        measure_timing: bool,
    ) -> None:
        super().__init__(io, inputs, outputs, measure_timing)
        self._session = session
        self._model = model
        self._moving = Lock()

    def open(self) -> "Execution[R]":
        """Send the inputs."""
        self._session.repeat(self._create_on, NO_DEADLINE)
        return self

    def _create_on(self, connection: Connection) -> None:
        """Create the objects of the execution on a connection, unless they are there.

        Raises:
            SessionLostError: the execution uses buffers that were lost with their session, or has been closed.
        """
        with self._moving:
            if self._connection is connection:
                return
            self._bound.execution.require_buffers()
            remote = self._model.prepare_on(connection, NO_DEADLINE)
            memory = connection.create_memory(self._bound.contents.size)
            try:
                connection.write_memory(memory, self._bound.contents)
            except BaseException:
                connection.discard(memory)
                raise
            self._move(remote, memory)

    def write(self, inputs: Mapping[int | str, ArrayLike]) -> None:
        """Change the values of inputs, by position or by name, for runs that begin later.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input, or the value does not match it.
        """
        changes = self._bound.changes(inputs)
        self._bound.update(changes)

        def write_on(connection: Connection) -> None:
            self._create_on(connection)
            for data, start in changes:
                connection.write_memory(self._input_memory, data, start)

        self._session.repeat(write_on, NO_DEADLINE)

    def run(self, *, deadline: float | None = None) -> R:
        """Run the execution and wait for its outputs.

        Args:
            deadline: seconds from now.

        Returns:
            Outputs, or BufferOutputs if buffers take some of them.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; MISSED_DEADLINE_*; or the execution failed.
        """
        end = SharedDeadline(deadline)
        execution = self._bound.execution

        def run_on(connection: Connection) -> Any:
            self._create_on(connection)
            self._synchronous = self._synchronous or self._create(connection, self._message())
            request = self._run_request(end.remaining)
            response = connection.call(connection.execution.ExecuteSynchronously, request)
            return execution.read(response, connection.take_memories(memory_handles(response.returned)))

        with execution.clearing_on_error():
            if execution.buffers:  # never repeated: an execution may change the buffers that it reads
                return cast(R, run_on(self._session.connection))
            return cast(R, self._session.repeat(run_on, end))

    def run_fenced(
        self, *, wait_for: Iterable[Fence] = (), deadline: float | None = None, duration: float | None = None
    ) -> ExecutionFence[R]:
        """Launch the execution, see `PreparedModel.execute_fenced`. The next fenced run overwrites its outputs.

        Raises:
            HalError: see `PreparedModel.execute_fenced`; GENERAL_FAILURE: another fenced run is in progress.
        """
        fences = [*wait_for] if isinstance(wait_for, Iterable) else wait_for

        def run_on(connection: Connection) -> ExecutionFence[R]:
            self._create_on(connection)
            self._fenced = self._fenced or self._create_fenced(connection)
            with self._superseding() as stored:
                request = self._run_fenced_request(fences, deadline, duration)
                launched = connection.call(connection.execution.ExecuteFenced, request)
            return ExecutionFence(connection, launched.fence, stored)

        if self._bound.execution.buffers:
            return run_on(self._session.connection)
        return self._session.repeat(run_on, NO_DEADLINE)

    def _create_fenced(self, connection: Connection) -> bytes:
        if self._fixed_outputs.size and not self._output_memory:
            self._output_memory = self._own(connection.create_memory(self._fixed_outputs.size))
        return self._create(connection, self._fenced_message())

    def _create(self, connection: Connection, request: types_pb2.Request) -> bytes:
        method = connection.prepared_model.CreateReusableExecution
        return self._own((connection.call(method, self._create_request(request))).execution)
