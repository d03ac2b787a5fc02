"""Fences of the client, and those of executions that run while the client does something else.

first = await prepared.execute_fenced([image])
second = await other.execute_fenced([first.outputs[0]])  # begins when the first ends; no transfer to the client
scores = await second.result()
"""

from typing import Any, Generic, cast

from nnhal import wire
from nnhal.client.aio.connection import Connection
from nnhal.client.core.arguments import optional_nanoseconds
from nnhal.client.core.fences import (
    NO_BYTES,
    FenceBase,
    FencedLaunch,
    FencedOutput,
    FencedTiming,
    R,
    StoredOutputs,
    require_success,
)
from nnhal.types import FenceState, Span
from nnhal.v1 import fence_pb2


class Fence(FenceBase[Connection]):
    """Object on the service that is signalled, or ends in error, once. The service releases it with this object."""

    async def wait(self, timeout: float | None = None) -> FenceState:
        """Wait until the fence is signalled or ends in error.

        Args:
            timeout: seconds; None waits without a limit, and 0 does not wait.

        Returns:
            the state: ACTIVE if the timeout expired first.

        Raises:
            HalError: the session has ended.
        """
        timeout_ns = optional_nanoseconds(timeout, "timeout")
        request = fence_pb2.WaitRequest(session=self._connection.session, fence=self.handle, timeout_ns=timeout_ns)
        return FenceState((await self._connection.call(self._connection.fence.Wait, request)).state)


class OwnFence(Fence):
    """Fence that the client signals. Executions that wait for it begin then.

    If it is released before it is signalled, it ends in error, and so do the executions.
    """

    async def signal(self, *, error: bool = False) -> None:
        """Signal the fence.

        Args:
            error: whether to end it in error.

        Raises:
            HalError: INVALID_ARGUMENT: it has already ended.
        """
        request = fence_pb2.SignalFenceRequest(session=self._connection.session, fence=self.handle, error=error)
        await self._connection.call(self._connection.fence.Signal, request)


async def create_fence(connection: Connection) -> OwnFence:
    """Create a fence for the client to signal."""
    request = fence_pb2.CreateFenceRequest(session=connection.session)
    created = await connection.call(connection.fence.Create, request)
    return OwnFence(connection, created.fence)


class ExecutionFence(Fence, Generic[R]):
    """Execution that was launched. Its outputs stay on the service until `result` fetches them."""

    def __init__(self, connection: Connection, handle: bytes, stored: StoredOutputs, *owned: bytes) -> None:
        super().__init__(connection, handle, *owned)
        self._stored = stored

    @property
    def outputs(self) -> tuple[FencedOutput, ...]:
        """Outputs on the service, as inputs for other fenced executions, which then wait for this one."""
        return self._stored.links(self)

    # sync: @property
    async def timing(self) -> FencedTiming:
        """Return the measured times, or -1 if the execution was not measured.

        Raises:
            HalError: GENERAL_FAILURE: the execution is still running; or it failed.
        """
        return await self._read_timing()

    # sync: @property
    async def spans(self) -> tuple[Span, ...]:
        """Return the measured parts of the work on the service, in the order of their ends.

        They are relative to the start of the execution on the device. Empty if the execution was not profiled, or if
        the device does not support it.

        Raises:
            HalError: GENERAL_FAILURE: the execution is still running; or it failed.
        """
        return tuple(map(wire.to_span, (await self._read_info()).spans))

    async def _read_timing(self) -> FencedTiming:
        info = await self._read_info()
        return FencedTiming(wire.to_timing(info.timing_launched), wire.to_timing(info.timing_fenced))

    async def _read_info(self) -> fence_pb2.GetExecutionInfoResponse:
        request = fence_pb2.GetExecutionInfoRequest(session=self._connection.session, fence=self.handle)
        return require_success(await self._connection.call(self._connection.fence.GetExecutionInfo, request))

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the end of the execution and fetch its outputs, except those in buffers.

        Args:
            timeout: seconds; None waits without a limit.

        Returns:
            Outputs, or BufferOutputs if buffers take some of them.

        Raises:
            HalError: the execution failed. GENERAL_FAILURE: a later run of a reusable execution has overwritten the
                outputs.
            TimeoutError: the timeout expired first.
        """
        if await self.wait(timeout) == FenceState.ACTIVE:
            raise TimeoutError(f"the execution did not end within {timeout} s")
        timing = await self._read_timing()
        memory = self._stored.memory
        data = await self._connection.read_memory(memory) if memory else NO_BYTES
        return cast(R, self._stored.read(data, timing))


async def execute_fenced(connection: Connection, prepared_model: bytes, launch: FencedLaunch) -> ExecutionFence[Any]:
    """Launch an execution, see `PreparedModel.execute_fenced`."""
    owned = [await connection.create_memory(launch.outputs.size)] if launch.outputs.size else []
    try:
        async with connection.uploaded(launch.pools) as encode_pool:
            memory = b"".join(owned)
            launched = await connection.call(*launch.call(connection, prepared_model, encode_pool, memory))
    except BaseException:
        connection.discard(*owned)
        raise
    return ExecutionFence(connection, launched.fence, StoredOutputs(launch.outputs, memory), *owned)
