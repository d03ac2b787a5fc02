"""Fences of the synchronous client: its own, and those of executions that run while the client does something else.

first = prepared.execute_fenced([image])
second = other.execute_fenced([first.outputs[0]])  # begins when the first is done; nothing comes back in between
answer = second.result()
"""

import weakref
from collections.abc import Iterable

from nnhal import fenced
from nnhal.connection import Connection
from nnhal.enums import FenceState
from nnhal.fenced import FencedInputs, FencedOutput, FencedRequest, FencedTiming, Layout
from nnhal.tensors import Ends, Outputs
from nnhal.v1 import fence_pb2, prepared_model_pb2

__all__ = ["ExecutionFence", "Fence", "OwnFence"]


class Fence:
    """A promise on the service that ends once: signalled, or in error. The service lets it go with this object."""

    def __init__(self, connection: Connection, handle: bytes, *others: bytes) -> None:
        self._connection = connection
        self._handle = handle
        self._finalizer = weakref.finalize(self, connection.discard, handle, *others)
        self._finalizer.atexit = False

    @property
    def handle(self) -> bytes:
        """Of the object in the session."""
        return self._handle

    def wait(self, timeout: float | None = None) -> FenceState:
        """Waits for the end.

        Args:
            timeout: seconds; None: as long as it takes; 0: just look.

        Returns:
            ACTIVE where the time was over first.

        Raises:
            HalError: the session has ended.
        """
        request = fence_pb2.WaitRequest(
            session=self._connection.session, fence=self._handle, timeout_ns=fenced.nanoseconds(timeout)
        )
        return FenceState(self._connection.call(self._connection.fence.Wait, request).state)


class OwnFence(Fence):
    """A fence of the client's own: executions that wait for it begin when it is signalled.

    One that is let go before it is signalled ends in error, and so do they.
    """

    def __init__(self, connection: Connection) -> None:
        create = fence_pb2.CreateFenceRequest(session=connection.session)
        super().__init__(connection, connection.call(connection.fence.Create, create).fence)

    def signal(self, *, error: bool = False) -> None:
        """Ends it.

        Raises:
            HalError: INVALID_ARGUMENT: it has ended already.
        """
        request = fence_pb2.SignalFenceRequest(session=self._connection.session, fence=self._handle, error=error)
        self._connection.call(self._connection.fence.Signal, request)


class ExecutionFence(Fence):
    """An execution that was launched. Its outputs stay on the service until `result` fetches them.

    Args:
        memory: where the outputs lie.
        owned: handles to let go with the fence.
    """

    def __init__(
        self, connection: Connection, handle: bytes, ends: Ends, layout: Layout, memory: bytes, *owned: bytes
    ) -> None:
        super().__init__(connection, handle, *owned)
        self._ends = ends
        self._layout = layout
        self._memory = memory

    @property
    def outputs(self) -> tuple[FencedOutput, ...]:
        """The outputs where they lie: inputs for other fenced executions, which then wait for this one."""
        places = zip(self._ends.outputs, self._layout.offsets, self._layout.sizes, strict=True)
        return tuple(FencedOutput(self, operand, self._memory, *place) for operand, *place in places)

    @property
    def timing(self) -> FencedTiming:
        """What was measured, if that was asked for.

        Raises:
            HalError: GENERAL_FAILURE: it is still running; or why the execution failed.
        """
        request = fence_pb2.GetExecutionInfoRequest(session=self._connection.session, fence=self._handle)
        return fenced.check_info(self._connection.call(self._connection.fence.GetExecutionInfo, request))

    def result(self, timeout: float | None = None) -> Outputs:
        """Waits for the end and fetches the outputs.

        Args:
            timeout: seconds; None: as long as it takes.

        Raises:
            HalError: the execution failed.
            TimeoutError: the time was over first.
        """
        if self.wait(timeout) == FenceState.ACTIVE:
            raise TimeoutError(f"the execution did not end within {timeout} s")
        timing = self.timing
        return fenced.read_outputs(
            self._ends, self._layout, self._connection.read_memory(self._memory), timing.launched
        )


def execute_fenced(
    connection: Connection,
    prepared_model: bytes,
    ends: Ends,
    inputs: FencedInputs,
    wait_for: Iterable[Fence],
    deadline: float | None,
    duration: float | None,
    measure_timing: bool,
) -> ExecutionFence:
    """Launches an execution; see `nnhal.client.PreparedModel.execute_fenced`."""
    request = FencedRequest(ends, inputs)
    memory = connection.create_memory(request.layout.size)
    handles: list[bytes] = []
    try:
        send = connection.place(request.request.pools, handles, lasting=False)
        launched = connection.call(
            connection.prepared_model.ExecuteFenced,
            prepared_model_pb2.ExecuteFencedRequest(
                session=connection.session,
                prepared_model=prepared_model,
                request=request.message(send, memory),
                wait_for=[fence.handle for fence in (*wait_for, *request.fences)],
                measure_timing=measure_timing,
                deadline_ns=fenced.nanoseconds(deadline),
                duration_ns=fenced.nanoseconds(duration),
            ),
        )
    except BaseException:
        connection.discard(memory)
        raise
    finally:
        connection.discard(*handles)
    return ExecutionFence(connection, launched.fence, ends, request.layout, memory, memory)
