"""Reusable executions of the asyncio client: as `nnhal.reusable`, and what waits is awaited.

execution = await prepared.reusable({"image": image, "threshold": 0.5})
for image in images:
    await execution.write({"image": image})
    outputs = await execution.run()
"""

from collections.abc import Iterable, Mapping
from typing import Generic, cast

from numpy.typing import ArrayLike

from nnhal.aio_connection import Connection
from nnhal.aio_fence import ExecutionFence, Fence
from nnhal.fence import R
from nnhal.frozen import ExecutionBase
from nnhal.owned import AioOwned
from nnhal.prepared import in_memory
from nnhal.v1 import types_pb2

__all__ = ["Execution"]


class Execution(ExecutionBase[Connection], Generic[R], AioOwned):
    """As `nnhal.reusable.Execution`; `open` it."""

    async def open(self) -> "Execution[R]":
        """Sends the inputs."""
        self._inputs = await self._memory(self._frozen.contents.size)
        await self._connection.write_memory(self._inputs, self._frozen.contents)
        return self

    async def write(self, inputs: Mapping[int | str, ArrayLike]) -> None:
        """As `nnhal.reusable.Execution.write`."""
        for data, start in self._frozen.changes(inputs):
            await self._connection.write_memory(self._inputs, data, start)

    async def run(self, *, deadline: float | None = None) -> R:
        """As `nnhal.reusable.Execution.run`."""
        connection = self._connection
        self._synchronous = self._synchronous or await self._create(self._message())
        execution = self._frozen.execution
        with execution.filling():
            response = await connection.call(connection.execution.ExecuteSynchronously, self._run_request(deadline))
            return cast(R, execution.read(response, await connection.fetch(in_memory(response.returned))))

    async def run_fenced(
        self, *, wait_for: Iterable[Fence] = (), deadline: float | None = None, duration: float | None = None
    ) -> ExecutionFence[R]:
        """As `nnhal.reusable.Execution.run_fenced`."""
        connection = self._connection
        self._fenced = self._fenced or await self._create_fenced()
        with self._overtaking() as stored:
            request = self._run_fenced_request(wait_for, deadline, duration)
            launched = await connection.call(connection.execution.ExecuteFenced, request)
        return ExecutionFence(connection, launched.fence, stored)

    async def _create_fenced(self) -> bytes:
        if self._fixed.size and not self._outputs:
            self._outputs = await self._memory(self._fixed.size)
        return await self._create(self._fenced_message())

    async def _create(self, request: types_pb2.Request) -> bytes:
        method = self._connection.prepared_model.CreateReusableExecution
        return self._own((await self._connection.call(method, self._create_request(request))).execution)

    async def _memory(self, size: int) -> bytes:
        return self._own(await self._connection.create_memory(size))
