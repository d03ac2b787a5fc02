"""Reusable executions of the synchronous client: inputs that stay on the service and are changed in place.

execution = prepared.reusable({"image": image, "threshold": 0.5})
for image in images:
    execution.write({"image": image})
    outputs = execution.run()
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from numpy.typing import ArrayLike

from nnhal import fenced
from nnhal.connection import Connection
from nnhal.errors import general_failure
from nnhal.fence import ExecutionFence, Fence
from nnhal.fenced import Frozen, Layout
from nnhal.prepared import outputs_in_memory, read_results
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

    def result(self, timeout: float | None = None) -> Outputs:
        """As of an ExecutionFence.

        Raises:
            HalError: GENERAL_FAILURE: a later run has written over the outputs.
        """
        outputs = super().result(timeout)
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
        self._inputs = self._memory(self._frozen.contents.size)
        self._synchronous = b""
        self._fenced = b""
        self._outputs = b""
        self._last: Callable[[], ReusedFence | None] = lambda: None
        connection.write_memory(self._inputs, self._frozen.contents)

    def write(self, inputs: Mapping[int | str, ArrayLike]) -> None:
        """Changes the values of inputs, by position or by name, for the runs that begin later.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input, or it does not fit.
        """
        for data, start in self._frozen.changes(inputs):
            self._connection.write_memory(self._inputs, data, start)

    def run(self, *, deadline: float | None = None) -> Outputs:
        """Runs it and waits for the outputs.

        Args:
            deadline: seconds from now.

        Raises:
            HalError: GENERAL_FAILURE: another run is in progress; MISSED_DEADLINE_*; or the execution failed.
        """
        connection = self._connection
        self._synchronous = self._synchronous or self._create(self._frozen.message(self._inputs))
        request = execution_pb2.RunExecutionRequest(
            session=connection.session, execution=self._synchronous, deadline_ns=fenced.nanoseconds(deadline)
        )
        response = connection.call(connection.execution.ExecuteSynchronously, request)
        returned = outputs_in_memory(response)
        try:
            memories: dict[bytes, Bytes] = {handle: connection.read_memory(handle) for handle in returned}
            return read_results(self._ends, response, memories)
        finally:
            connection.discard(*returned)

    def run_fenced(
        self, *, wait_for: Iterable[Fence] = (), deadline: float | None = None, duration: float | None = None
    ) -> ReusedFence:
        """Launches it; see `PreparedModel.execute_fenced`.

        Raises:
            HalError: as there; GENERAL_FAILURE: another fenced run is in progress.
        """
        connection, layout = self._connection, fenced.output_layout(self._ends)
        self._fenced = self._fenced or self._create_fenced(layout)
        request = execution_pb2.RunExecutionFencedRequest(
            session=connection.session,
            execution=self._fenced,
            wait_for=[fence.handle for fence in wait_for],
            deadline_ns=fenced.nanoseconds(deadline),
            duration_ns=fenced.nanoseconds(duration),
        )
        with overtaking(self._last()):
            launched = connection.call(connection.execution.ExecuteFenced, request)
        made = ReusedFence(connection, launched.fence, self._ends, layout, self._outputs, self)
        self._last = weakref.ref(made)
        return made

    def _create_fenced(self, layout: Layout) -> bytes:
        self._outputs = self._outputs or self._memory(layout.size)
        message = self._frozen.message(self._inputs)
        fenced.place_outputs(message, layout, self._outputs)
        return self._create(message)

    def _create(self, request: types_pb2.Request) -> bytes:
        create = prepared_model_pb2.CreateReusableExecutionRequest(
            session=self._connection.session,
            prepared_model=self._prepared_model,
            request=request,
            config=self._config,
        )
        method = self._connection.prepared_model.CreateReusableExecution
        self._handles.append(self._connection.call(method, create).execution)
        return self._handles[-1]

    def _memory(self, size: int) -> bytes:
        self._handles.append(self._connection.create_memory(size))
        return self._handles[-1]

    def close(self) -> None:
        """Lets it go. Runs in progress finish."""
        self._finalizer()

    def __enter__(self) -> "Execution":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def overtaking(last: "Overtakable | None") -> Iterator[None]:
    """Surrounds the launch of a run: the one before it has lost its outputs, unless the launch fails."""
    if last is None:
        yield
        return
    before, last.overtaken = last.overtaken, True
    try:
        yield
    except BaseException:
        last.overtaken = before
        raise


class Discarding(Protocol):
    """Either client's connection."""

    def discard(self, *handles: bytes) -> None:
        """Lets objects go."""


class Overtakable(Protocol):
    """Either client's fenced run."""

    overtaken: bool


def discard_all(connection: Discarding, handles: list[bytes]) -> None:
    """Lets go what an execution has by then."""
    connection.discard(*handles)
