"""Reusable executions of the asyncio client: as `nnhal.reusable`, and what waits is awaited.

execution = await prepared.reusable({"image": image, "threshold": 0.5})
for image in images:
    await execution.write({"image": image})
    outputs = await execution.run()
"""

import weakref
from collections.abc import Callable, Iterable, Mapping

from numpy.typing import ArrayLike

from nnhal import fenced
from nnhal.aio_connection import Connection
from nnhal.aio_fence import ExecutionFence, Fence
from nnhal.errors import general_failure
from nnhal.fenced import Frozen, Layout
from nnhal.prepared import outputs_in_memory, read_results
from nnhal.reusable import discard_all, overtaking
from nnhal.tensors import Ends, Inputs, Outputs
from nnhal.types import Bytes
from nnhal.v1 import execution_pb2, prepared_model_pb2, types_pb2

__all__ = ["Execution", "ReusedFence"]


class ReusedFence(ExecutionFence):
    """A fenced run of a reusable execution. The next fenced run writes over its outputs.

    Args:
        execution: is kept alive, and with it the memory of the outputs.
    """

    def __init__(
        self, connection: Connection, handle: bytes, ends: Ends, layout: Layout, memory: bytes, execution: object
    ) -> None:
        super().__init__(connection, handle, ends, layout, memory)
        self._execution = execution
        self.overtaken = False

    async def result(self, timeout: float | None = None) -> Outputs:
        """As of an ExecutionFence.

        Raises:
            HalError: GENERAL_FAILURE: a later run has written over the outputs.
        """
        outputs = await super().result(timeout)
        if self.overtaken:
            raise general_failure("a later run of this execution has written over these outputs")
        return outputs


class Execution:
    """A frozen execution of a prepared model. Runs of one kind, `run` or `run_fenced`, come one after another.

    The service lets it go when this object is closed or collected.
    """

    def __init__(
        self, connection: Connection, prepared_model: bytes, ends: Ends, inputs: Inputs, measure_timing: bool
    ) -> None:
        self._connection = connection
        self._prepared_model = prepared_model
        self._ends = ends
        self._config = types_pb2.ExecutionConfig(measure_timing=measure_timing)
        self._handles: list[bytes] = []
        self._finalizer = weakref.finalize(self, discard_all, connection, self._handles)
        self._finalizer.atexit = False
        self._frozen = Frozen(ends, inputs)
        self._inputs = b""
        self._synchronous = b""
        self._fenced = b""
        self._outputs = b""
        self._last: Callable[[], ReusedFence | None] = lambda: None

    async def open(self) -> "Execution":
        """Sends the inputs."""
        self._inputs = await self._memory(self._frozen.contents.size)
        await self._connection.write_memory(self._inputs, self._frozen.contents)
        return self

    async def write(self, inputs: Mapping[int | str, ArrayLike]) -> None:
        """Changes the values of inputs, by position or by name, for the runs that begin later.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input, or it does not fit.
        """
        for data, start in self._frozen.changes(inputs):
            await self._connection.write_memory(self._inputs, data, start)

    async def run(self, *, deadline: float | None = None) -> Outputs:
        """Runs it and waits for the outputs.

        Args:
            deadline: seconds from now.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; MISSED_DEADLINE_*; or the execution failed.
        """
        connection = self._connection
        self._synchronous = self._synchronous or await self._create(self._frozen.message(self._inputs))
        request = execution_pb2.RunExecutionRequest(
            session=connection.session, execution=self._synchronous, deadline_ns=fenced.nanoseconds(deadline)
        )
        response = await connection.call(connection.execution.ExecuteSynchronously, request)
        returned = outputs_in_memory(response)
        try:
            memories: dict[bytes, Bytes] = {handle: await connection.read_memory(handle) for handle in returned}
            return read_results(self._ends, response, memories)
        finally:
            connection.discard(*returned)

    async def run_fenced(
        self, *, wait_for: Iterable[Fence] = (), deadline: float | None = None, duration: float | None = None
    ) -> ReusedFence:
        """Launches it; see `PreparedModel.execute_fenced`.

        Raises:
            HalError: as there; GENERAL_FAILURE: another fenced run is in progress.
        """
        connection, layout = self._connection, fenced.output_layout(self._ends)
        self._fenced = self._fenced or await self._create_fenced(layout)
        request = execution_pb2.RunExecutionFencedRequest(
            session=connection.session,
            execution=self._fenced,
            wait_for=[fence.handle for fence in wait_for],
            deadline_ns=fenced.nanoseconds(deadline),
            duration_ns=fenced.nanoseconds(duration),
        )
        with overtaking(self._last()):
            launched = await connection.call(connection.execution.ExecuteFenced, request)
        made = ReusedFence(connection, launched.fence, self._ends, layout, self._outputs, self)
        self._last = weakref.ref(made)
        return made

    async def _create_fenced(self, layout: Layout) -> bytes:
        self._outputs = self._outputs or await self._memory(layout.size)
        message = self._frozen.message(self._inputs)
        fenced.place_outputs(message, layout, self._outputs)
        return await self._create(message)

    async def _create(self, request: types_pb2.Request) -> bytes:
        create = prepared_model_pb2.CreateReusableExecutionRequest(
            session=self._connection.session,
            prepared_model=self._prepared_model,
            request=request,
            config=self._config,
        )
        method = self._connection.prepared_model.CreateReusableExecution
        self._handles.append((await self._connection.call(method, create)).execution)
        return self._handles[-1]

    async def _memory(self, size: int) -> bytes:
        self._handles.append(await self._connection.create_memory(size))
        return self._handles[-1]

    async def close(self) -> None:
        """Lets it go. Runs in progress finish."""
        self._finalizer()

    async def __aenter__(self) -> "Execution":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
