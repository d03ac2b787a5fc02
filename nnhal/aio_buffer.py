"""Driver-managed buffers for asyncio: as `nnhal.buffer`; what waits is awaited."""

from numpy.typing import ArrayLike

from nnhal.aio_connection import Connection
from nnhal.buffer import BufferBase
from nnhal.owned import AioOwned
from nnhal.prepared import in_memory
from nnhal.types import AnyArray, Operand
from nnhal.v1 import device_pb2


class Buffer(BufferBase, AioOwned):
    """As `nnhal.buffer.Buffer`."""

    def __init__(self, connection: Connection, allocated: device_pb2.AllocateResponse, operand: Operand) -> None:
        super().__init__(connection, allocated, operand)
        self._connection = connection

    async def write(self, value: ArrayLike) -> None:
        """As `nnhal.buffer.Buffer.write`."""
        pool, shape = self._checked(value)
        self.holds(None)
        async with self._connection.spilled([pool]) as send:
            await self._connection.call(self._connection.buffer.CopyFrom, self._copy_from(send(pool), shape))
        self.holds(shape)

    async def read(self) -> AnyArray:
        """As `nnhal.buffer.Buffer.read`."""
        returned = (await self._connection.call(self._connection.buffer.CopyTo, self._copy_to())).returned
        return self._value(returned, await self._connection.fetch(in_memory([returned])))
