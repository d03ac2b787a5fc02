"""Driver-managed buffers: tensors that stay on the device between executions of one model or several.

async with await device.allocate(outputs=[(first, "features")], inputs=[(second, 0)]) as features:
    await first.execute([image], outputs={"features": features})
    scores = (await second.execute([features]))[0]
"""

from numpy.typing import ArrayLike

from nnhal.client.aio.connection import Connection
from nnhal.client.core.buffers import BufferBase
from nnhal.client.core.handles import AsyncCloseable
from nnhal.client.core.prepared_model import memory_handles
from nnhal.types import AnyArray
from nnhal.v1 import buffer_pb2


class Buffer(BufferBase, AsyncCloseable):
    """Driver-managed buffer. The service releases it when this object is closed or collected."""

    _connection: Connection

    async def write(self, value: ArrayLike) -> None:
        """Fill the buffer.

        Args:
            value: an array of the buffer's dtype and shape. Lists and numbers are converted.

        Raises:
            HalError: INVALID_ARGUMENT: the value does not match the buffer; RESOURCE_EXHAUSTED_*. The buffer may be
                uninitialized then.
        """
        pool, shape = self._convert(value)
        self.set_shape(None)
        async with self._connection.uploaded([pool]) as encode_pool:
            request = buffer_pb2.CopyFromRequest(
                session=self._session, buffer=self._handle, src=encode_pool(pool), dimensions=shape
            )
            await self._connection.call(self._connection.buffer.CopyFrom, request)
        self.set_shape(shape)

    async def read(self) -> AnyArray:
        """Return a copy of the value.

        Raises:
            HalError: GENERAL_FAILURE: the buffer is uninitialized.
        """
        request = buffer_pb2.CopyToRequest(session=self._session, buffer=self._handle)
        returned = (await self._connection.call(self._connection.buffer.CopyTo, request)).returned
        return self._to_array(returned, await self._connection.take_memories(memory_handles([returned])))
