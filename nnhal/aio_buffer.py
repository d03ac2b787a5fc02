"""Driver-managed buffers for asyncio: as `nnhal.buffer`; what waits is awaited."""

import numpy as np
from numpy.typing import ArrayLike

from nnhal.aio_connection import Connection
from nnhal.buffer import BufferBase
from nnhal.types import AnyArray, Memory, Operand
from nnhal.v1 import device_pb2


class Buffer(BufferBase):
    """A driver-managed buffer. The service lets it go when this object is closed or collected."""

    def __init__(self, connection: Connection, allocated: device_pb2.AllocateResponse, operand: Operand) -> None:
        super().__init__(allocated, operand, connection.discard)
        self._connection = connection

    async def write(self, value: ArrayLike) -> None:
        """Fills the buffer.

        Args:
            value: of the buffer's dtype (lists and numbers are converted) and shape.

        Raises:
            HalError: INVALID_ARGUMENT: it does not fit; RESOURCE_EXHAUSTED_*. The buffer may be uninitialised then.
        """
        array = self._array(value)
        shape, pool = self._value_shape(array), Memory.of(array)
        handles: list[bytes] = []
        self.holds(None)
        try:
            send = await self._connection.place([pool], handles, lasting=False)
            request = self._copy_from(self._connection.session, send(pool), shape)
            await self._connection.call(self._connection.buffer.CopyFrom, request)
        finally:
            self._connection.discard(*handles)
        self.holds(shape)

    async def read(self) -> AnyArray:
        """A copy of the value.

        Raises:
            HalError: GENERAL_FAILURE: the buffer is uninitialised.
        """
        request = self._copy_to(self._connection.session)
        returned = (await self._connection.call(self._connection.buffer.CopyTo, request)).returned
        if returned.WhichOneof("data") != "memory":
            return self._value(np.frombuffer(returned.inline, np.uint8))
        try:
            return self._value(await self._connection.read_memory(returned.memory))
        finally:
            self._connection.discard(returned.memory)

    async def close(self) -> None:
        """Lets the buffer go. Executions in progress finish."""
        self._finalizer()

    async def __aenter__(self) -> "Buffer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
