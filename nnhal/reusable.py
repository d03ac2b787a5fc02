"""Reusable executions of the synchronous client: inputs that stay on the service and are changed in place.

execution = prepared.reusable({"image": image, "threshold": 0.5})
for image in images:
    execution.write({"image": image})
    outputs = execution.run()
"""

from collections.abc import Iterable, Mapping
from typing import Generic, cast

from numpy.typing import ArrayLike

from nnhal.buffered import BufferInputs, Targets
from nnhal.connection import Connection
from nnhal.fence import ExecutionFence, Fence, R
from nnhal.frozen import ExecutionBase
from nnhal.owned import Owned
from nnhal.prepared import in_memory
from nnhal.tensors import Ends
from nnhal.v1 import types_pb2

__all__ = ["Execution"]


class Execution(ExecutionBase[Connection], Generic[R], Owned):
    """A frozen execution of a prepared model. Runs of one kind, `run` or `run_fenced`, come one after another.

    A run gives Outputs, or, where buffers take some of them, BufferOutputs. The service lets it go when this object is
    closed or collected.
    """

    def __init__(
        self,
        connection: Connection,
        prepared_model: bytes,
        ends: Ends,
        inputs: BufferInputs,
        outputs: Targets | None,
        measure_timing: bool,
    ) -> None:
        super().__init__(connection, prepared_model, ends, inputs, outputs, measure_timing)
        self._inputs = self._memory(self._frozen.contents.size)
        connection.write_memory(self._inputs, self._frozen.contents)

    def write(self, inputs: Mapping[int | str, ArrayLike]) -> None:
        """Changes the values of inputs, by position or by name, for the runs that begin later.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input, or it does not fit.
        """
        for data, start in self._frozen.changes(inputs):
            self._connection.write_memory(self._inputs, data, start)

    def run(self, *, deadline: float | None = None) -> R:
        """Runs it and waits for the outputs.

        Args:
            deadline: seconds from now.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; MISSED_DEADLINE_*; or the execution failed.
        """
        connection = self._connection
        self._synchronous = self._synchronous or self._create(self._message())
        execution = self._frozen.execution
        with execution.filling():
            response = connection.call(connection.execution.ExecuteSynchronously, self._run_request(deadline))
            return cast(R, execution.read(response, connection.fetch(in_memory(response.returned))))

    def run_fenced(
        self, *, wait_for: Iterable[Fence] = (), deadline: float | None = None, duration: float | None = None
    ) -> ExecutionFence[R]:
        """Launches it; see `PreparedModel.execute_fenced`. The next fenced run writes over its outputs.

        Raises:
            HalError: as there; GENERAL_FAILURE: another fenced run is in progress.
        """
        connection = self._connection
        self._fenced = self._fenced or self._create_fenced()
        with self._overtaking() as stored:
            request = self._run_fenced_request(wait_for, deadline, duration)
            launched = connection.call(connection.execution.ExecuteFenced, request)
        return ExecutionFence(connection, launched.fence, stored)

    def _create_fenced(self) -> bytes:
        if self._fixed.size and not self._outputs:
            self._outputs = self._memory(self._fixed.size)
        return self._create(self._fenced_message())

    def _create(self, request: types_pb2.Request) -> bytes:
        method = self._connection.prepared_model.CreateReusableExecution
        return self._own(self._connection.call(method, self._create_request(request)).execution)

    def _memory(self, size: int) -> bytes:
        return self._own(self._connection.create_memory(size))
