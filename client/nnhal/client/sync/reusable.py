# Generated from aio/reusable.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Reusable executions: inputs stay on the service and are changed in place.

execution = prepared.reusable({"image": image, "threshold": 0.5})
for image in images:
    execution.write({"image": image})
    outputs = execution.run()
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic, Protocol, cast

from numpy.typing import ArrayLike

from nnhal.client.core.arguments import optional_nanoseconds
from nnhal.client.core.arrays import ModelIO
from nnhal.client.core.buffered_execution import BufferInputs, OutputBuffers
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.core.fences import FixedOutputs, R, StoredOutputs, fence_handles
from nnhal.client.core.handles import Closeable, release_with
from nnhal.client.core.prepared_model import RemoteModel, memory_handles
from nnhal.client.core.reusable import BoundInputs
from nnhal.client.sync.concurrency import Lock
from nnhal.client.sync.connection import Connection
from nnhal.client.sync.fence import ExecutionFence, Fence
from nnhal.client.sync.reconnect import ReconnectingSession
from nnhal.errors import SessionLostError
from nnhal.types import ErrorStatus
from nnhal.v1 import execution_pb2, prepared_model_pb2, types_pb2


class RenewableModel(Protocol):
    """A prepared model that can be prepared again."""

    def prepare_on(self, connection: Connection, deadline: SharedDeadline) -> RemoteModel[Connection]:
        """Return the model on a connection, and prepare it there if it is not yet."""


class Execution(Generic[R], Closeable):
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
        self._session = session
        self._model = model
        self._io = io
        self._config = types_pb2.ExecutionConfig(measure_timing=measure_timing)
        self._bound = BoundInputs(io, inputs, outputs)
        self._moving = Lock()
        self._remote: RemoteModel[Connection] | None = None
        self._handles: list[bytes] = []
        self._finalizer: weakref.finalize[Any, Any] = release_with(self, lambda: None)
        self._input_memory = self._output_memory = b""
        self._synchronous = self._fenced = b""  # handles of the two kinds of runs
        self._last_outputs: Callable[[], StoredOutputs | None] = lambda: None

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
            if self._remote is not None and self._remote.connection is connection:
                return
            self._bound.execution.require_buffers()
            remote = self._model.prepare_on(connection, NO_DEADLINE)
            memory = connection.create_memory(self._bound.contents.size)
            try:
                connection.write_memory(memory, self._bound.contents)
                if self._finalizer.detach() is None:
                    raise SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, "the execution has been closed")
            except BaseException:
                connection.discard(memory)
                raise
            self._remote = remote
            self._handles = [memory]
            self._finalizer = release_with(self, _discard_all, remote.connection, self._handles)
            self._input_memory = memory
            self._output_memory = self._synchronous = self._fenced = b""

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
            if not self._synchronous:
                self._synchronous = self._create(connection, self._bound.message(self._input_memory))
            request = execution_pb2.RunExecutionRequest(
                session=connection.session,
                execution=self._synchronous,
                deadline_ns=optional_nanoseconds(end.remaining),
            )
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
                request = execution_pb2.RunExecutionFencedRequest(
                    session=connection.session,
                    execution=self._fenced,
                    wait_for=fence_handles(fences),
                    deadline_ns=optional_nanoseconds(deadline),
                    duration_ns=optional_nanoseconds(duration, "duration"),
                )
                launched = connection.call(connection.execution.ExecuteFenced, request)
            return ExecutionFence(connection, launched.fence, stored)

        if self._bound.execution.buffers:
            return run_on(self._session.connection)
        return self._session.repeat(run_on, NO_DEADLINE)

    @cached_property
    def _fixed_outputs(self) -> FixedOutputs:
        """Outputs of fenced runs."""
        return FixedOutputs(self._io, self._bound.execution)

    @contextmanager
    def _superseding(self) -> Iterator[StoredOutputs]:
        """Yield the outputs of a run that is launched within; those of the run before are lost if that succeeds."""
        outputs = StoredOutputs(self._fixed_outputs, self._output_memory, self)
        last = self._last_outputs()
        was_superseded = last is not None and last.superseded
        if last is not None:
            last.superseded = True
        try:
            yield outputs
        except BaseException:
            if last is not None:
                last.superseded = was_superseded
            raise
        self._last_outputs = weakref.ref(outputs)

    def _create_fenced(self, connection: Connection) -> bytes:
        if self._fixed_outputs.size and not self._output_memory:
            self._output_memory = connection.create_memory(self._fixed_outputs.size)
            self._handles.append(self._output_memory)
        request = self._bound.message(self._input_memory)
        self._fixed_outputs.fill_request(request, self._output_memory)
        return self._create(connection, request)

    def _create(self, connection: Connection, request: types_pb2.Request) -> bytes:
        """Create an execution on the service, and return its handle."""
        assert self._remote is not None
        message = prepared_model_pb2.CreateReusableExecutionRequest(
            session=connection.session, prepared_model=self._remote.handle, request=request, config=self._config
        )
        created = connection.call(connection.prepared_model.CreateReusableExecution, message)
        self._handles.append(created.execution)
        return self._handles[-1]


def _discard_all(connection: Connection, handles: list[bytes]) -> None:
    """Release the handles that the list has at the time of the call."""
    connection.discard(*handles)
