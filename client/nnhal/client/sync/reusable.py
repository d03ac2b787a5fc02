# Generated from aio/reusable.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Reusable executions: inputs stay on the service and are changed in place.

execution = prepared.reusable({"image": image, "threshold": 0.5})
for image in images:
    execution.write({"image": image})
    outputs = execution.run()
"""

from collections.abc import Iterable, Mapping
from typing import Generic, cast

from numpy.typing import ArrayLike

from nnhal.client.core.fences import R
from nnhal.client.core.handles import Closeable
from nnhal.client.core.prepared_model import memory_handles
from nnhal.client.core.reusable import ReusableExecutionBase
from nnhal.client.sync.connection import Connection
from nnhal.client.sync.fence import ExecutionFence, Fence
from nnhal.v1 import types_pb2


class Execution(ReusableExecutionBase[Connection], Generic[R], Closeable):
    """Reusable execution of a prepared model. At most one `run` and one `run_fenced` may be in progress.

    The service releases it when this object is closed or collected.
    """

    def open(self) -> "Execution[R]":
        """Send the inputs."""
        self._input_memory = self._create_memory(self._bound.contents.size)
        self._connection.write_memory(self._input_memory, self._bound.contents)
        return self

    def write(self, inputs: Mapping[int | str, ArrayLike]) -> None:
        """Change the values of inputs, by position or by name, for runs that begin later.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input, or the value does not match it.
        """
        for data, start in self._bound.changes(inputs):
            self._connection.write_memory(self._input_memory, data, start)

    def run(self, *, deadline: float | None = None) -> R:
        """Run the execution and wait for its outputs.

        Args:
            deadline: seconds from now.

        Returns:
            Outputs, or BufferOutputs if buffers take some of them.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; MISSED_DEADLINE_*; or the execution failed.
        """
        connection = self._connection
        self._synchronous = self._synchronous or self._create(self._message())
        execution = self._bound.execution
        with execution.clearing_on_error():
            response = connection.call(connection.execution.ExecuteSynchronously, self._run_request(deadline))
            memories = connection.take_memories(memory_handles(response.returned))
            return cast(R, execution.read(response, memories))

    def run_fenced(
        self, *, wait_for: Iterable[Fence] = (), deadline: float | None = None, duration: float | None = None
    ) -> ExecutionFence[R]:
        """Launch the execution, see `PreparedModel.execute_fenced`. The next fenced run overwrites its outputs.

        Raises:
            HalError: see `PreparedModel.execute_fenced`; GENERAL_FAILURE: another fenced run is in progress.
        """
        connection = self._connection
        self._fenced = self._fenced or self._create_fenced()
        with self._superseding() as stored:
            request = self._run_fenced_request(wait_for, deadline, duration)
            launched = connection.call(connection.execution.ExecuteFenced, request)
        return ExecutionFence(connection, launched.fence, stored)

    def _create_fenced(self) -> bytes:
        if self._fixed_outputs.size and not self._output_memory:
            self._output_memory = self._create_memory(self._fixed_outputs.size)
        return self._create(self._fenced_message())

    def _create(self, request: types_pb2.Request) -> bytes:
        method = self._connection.prepared_model.CreateReusableExecution
        return self._own((self._connection.call(method, self._create_request(request))).execution)

    def _create_memory(self, size: int) -> bytes:
        return self._own(self._connection.create_memory(size))
