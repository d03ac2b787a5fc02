"""Fences of the asyncio client: as `nnhal.fence`, and what waits is awaited.

first = await prepared.execute_fenced([image])
second = await other.execute_fenced([first.outputs[0]])
answer = await second.result()
"""

from typing import Any, Generic, cast

from nnhal.aio_connection import Connection
from nnhal.enums import FenceState
from nnhal.fence import R
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


class Fence(FenceBase[Connection]):
    """As `nnhal.fence.Fence`."""

    async def wait(self, timeout: float | None = None) -> FenceState:
        """As `nnhal.fence.Fence.wait`."""
        response = await self._connection.call(self._connection.fence.Wait, self._wait_request(timeout))
        return FenceState(response.state)


class OwnFence(Fence):
    """As `nnhal.fence.OwnFence`."""

    @staticmethod
    async def make(connection: Connection) -> "OwnFence":
        """Makes one."""
        create = fence_pb2.CreateFenceRequest(session=connection.session)
        return OwnFence(connection, (await connection.call(connection.fence.Create, create)).fence)

    async def signal(self, *, error: bool = False) -> None:
        """As `nnhal.fence.OwnFence.signal`."""
        await self._connection.call(self._connection.fence.Signal, self._signal_request(error))


class ExecutionFence(Fence, Generic[R]):
    """As `nnhal.fence.ExecutionFence`."""

    def __init__(self, connection: Connection, handle: bytes, stored: StoredOutputs, *owned: bytes) -> None:
        super().__init__(connection, handle, *owned)
        self._stored = stored

    @property
    def outputs(self) -> tuple[FencedOutput, ...]:
        """As `nnhal.fence.ExecutionFence.outputs`."""
        return self._stored.links(self)

    async def timing(self) -> FencedTiming:
        """As `nnhal.fence.ExecutionFence.timing`."""
        return check_info(await self._connection.call(self._connection.fence.GetExecutionInfo, self._info_request()))

    async def result(self, timeout: float | None = None) -> R:
        """As `nnhal.fence.ExecutionFence.result`."""
        hold_ended(await self.wait(timeout), timeout)
        timing = await self.timing()
        memory = self._stored.memory
        data = await self._connection.read_memory(memory) if memory else NO_BYTES
        return cast(R, self._stored.read(data, timing))


async def execute_fenced(connection: Connection, prepared_model: bytes, launch: FencedLaunch) -> ExecutionFence[Any]:
    """Launches an execution; see `nnhal.client.PreparedModel.execute_fenced`."""
    owned = [await connection.create_memory(launch.outputs.size)] if launch.outputs.size else []
    try:
        async with connection.spilled(launch.pools) as send:
            request = launch.message(connection.session, prepared_model, send, *owned)
            launched = await connection.call(connection.prepared_model.ExecuteFenced, request)
    except BaseException:
        connection.discard(*owned)
        raise
    return ExecutionFence(connection, launched.fence, launch.stored(*owned), *owned)
