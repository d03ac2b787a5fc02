"""Fences of the synchronous client: its own, and those of executions that run while the client does something else.

first = prepared.execute_fenced([image])
second = other.execute_fenced([first.outputs[0]])  # begins when the first is done; nothing comes back in between
answer = second.result()
"""

from typing import Any, Generic, TypeVar, cast

from nnhal.connection import Connection
from nnhal.enums import FenceState
from nnhal.fenced import (
    NO_BYTES,
    FenceBase,
    FencedLaunch,
    FencedOutput,
    FencedTiming,
    StoredOutputs,
    check_info,
    hold_ended,
)
from nnhal.v1 import fence_pb2

__all__ = ["ExecutionFence", "Fence", "OwnFence"]

R = TypeVar("R")


class Fence(FenceBase[Connection]):
    """A promise on the service that ends once: signalled, or in error. The service lets it go with this object."""

    def wait(self, timeout: float | None = None) -> FenceState:
        """Waits for the end.

        Args:
            timeout: seconds; None: as long as it takes; 0: just look.

        Returns:
            ACTIVE where the time was over first.

        Raises:
            HalError: the session has ended.
        """
        response = self._connection.call(self._connection.fence.Wait, self._wait_request(timeout))
        return FenceState(response.state)


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
        self._connection.call(self._connection.fence.Signal, self._signal_request(error))


class ExecutionFence(Fence, Generic[R]):
    """An execution that was launched. Its outputs stay on the service until `result` fetches them.

    `result` gives Outputs, or, where buffers took some of them, BufferOutputs.

    Args:
        owned: handles to let go with the fence.
    """

    def __init__(self, connection: Connection, handle: bytes, stored: StoredOutputs, *owned: bytes) -> None:
        super().__init__(connection, handle, *owned)
        self._stored = stored

    @property
    def outputs(self) -> tuple[FencedOutput, ...]:
        """The outputs where they lie: inputs for other fenced executions, which then wait for this one."""
        return self._stored.links(self)

    @property
    def timing(self) -> FencedTiming:
        """What was measured, if that was asked for.

        Raises:
            HalError: GENERAL_FAILURE: it is still running; or why the execution failed.
        """
        return check_info(self._connection.call(self._connection.fence.GetExecutionInfo, self._info_request()))

    def result(self, timeout: float | None = None) -> R:
        """Waits for the end and fetches the outputs, but those that lie in buffers.

        Args:
            timeout: seconds; None: as long as it takes.

        Raises:
            HalError: the execution failed; GENERAL_FAILURE: a later run of a reusable one has written over the outputs.
            TimeoutError: the time was over first.
        """
        hold_ended(self.wait(timeout), timeout)
        timing = self.timing
        memory = self._stored.memory
        data = self._connection.read_memory(memory) if memory else NO_BYTES
        return cast(R, self._stored.read(data, timing))


def execute_fenced(connection: Connection, prepared_model: bytes, launch: FencedLaunch) -> ExecutionFence[Any]:
    """Launches an execution; see `nnhal.client.PreparedModel.execute_fenced`."""
    owned = [connection.create_memory(launch.outputs.size)] if launch.outputs.size else []
    try:
        with connection.spilled(launch.pools) as send:
            request = launch.message(connection.session, prepared_model, send, *owned)
            launched = connection.call(connection.prepared_model.ExecuteFenced, request)
    except BaseException:
        connection.discard(*owned)
        raise
    return ExecutionFence(connection, launched.fence, launch.stored(*owned), *owned)
