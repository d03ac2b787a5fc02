"""Driver-managed buffers: tensors that stay on the device, between executions of one model or of several.

with device.allocate(outputs=[(first, "features")], inputs=[(second, 0)]) as features:
    first.execute([image], outputs={"features": features})
    scores = second.execute([features])[0]

What both clients share is here too: `nnhal.aio_buffer` has the buffer for asyncio. Executions that use buffers:
`nnhal.buffered`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.errors import general_failure, invalid_argument
from nnhal.owned import AnyConnection, Owned, goes_with
from nnhal.prepared import PreparedModelBase, in_memory
from nnhal.tensors import checked_array, output_array
from nnhal.types import (
    DTYPES,
    AnyArray,
    BufferRole,
    Bytes,
    Memory,
    Operand,
    byte_size,
    is_fully_specified,
    is_tensor,
)
from nnhal.v1 import buffer_pb2, device_pb2, types_pb2

if TYPE_CHECKING:
    from nnhal.connection import Connection

Dimensions = tuple[int, ...]
Roles: TypeAlias = Iterable[tuple[PreparedModelBase, int | str]]
"""Uses of a buffer: prepared models, each with the number or the name of an input (output)."""


class BufferBase:
    """A buffer of the device; the clients add how to write and read it.

    Attributes:
        operand: type, quantisation and shape of what it can hold; 0 and () in the shape are unknown.
        token: its number in requests.
    """

    def __init__(self, connection: AnyConnection, allocated: device_pb2.AllocateResponse, operand: Operand) -> None:
        self.operand = operand
        self.token = allocated.token
        self._shape: Dimensions | None = None
        self._session = connection.session
        self._handle = allocated.buffer
        self._finalizer = goes_with(self, connection.discard, allocated.buffer)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Of its elements."""
        return DTYPES[self.operand.type]

    @property
    def shape(self) -> Dimensions | None:
        """Its own where that is fully known; else that of what this object last put there, None before."""
        declared = self.operand.dimensions
        return declared if is_fully_specified(self.operand.type, declared) else self._shape

    def holds(self, shape: Dimensions | None) -> None:
        """Notes the shape of a new value; None where an attempt to write failed."""
        self._shape = shape

    def _checked(self, value: ArrayLike) -> tuple[Memory, Dimensions]:
        """The bytes and the shape of a new value.

        Raises:
            HalError: INVALID_ARGUMENT: it does not fit.
        """
        array = checked_array(self.operand, value, "the value", "the buffer")
        return Memory.of(array), array.shape if is_tensor(self.operand.type) else ()

    def _copy_from(self, source: types_pb2.Memory, shape: Dimensions) -> buffer_pb2.CopyFromRequest:
        return buffer_pb2.CopyFromRequest(session=self._session, buffer=self._handle, src=source, dimensions=shape)

    def _copy_to(self) -> buffer_pb2.CopyToRequest:
        return buffer_pb2.CopyToRequest(session=self._session, buffer=self._handle)

    def _value(self, returned: types_pb2.ReturnedOutput, memories: Mapping[bytes, Bytes]) -> AnyArray:
        """The value as an array. `memories`: the bytes of Memory objects, by handle.

        Raises:
            HalError: GENERAL_FAILURE: its shape is not known here.
        """
        data = memories[returned.memory] if returned.memory else np.frombuffer(returned.inline, np.uint8)
        shape = self.shape
        if shape is None or byte_size(self.operand.type, shape) != data.size:
            raise general_failure(f"the buffer holds {data.size} bytes that somebody else wrote: of what shape?")
        return output_array(self.operand, data, shape)


class Buffer(BufferBase, Owned):
    """A driver-managed buffer. Thread safe. The service lets it go when this object is closed or collected."""

    def __init__(self, connection: "Connection", allocated: device_pb2.AllocateResponse, operand: Operand) -> None:
        super().__init__(connection, allocated, operand)
        self._connection = connection

    def write(self, value: ArrayLike) -> None:
        """Fills the buffer.

        Args:
            value: of the buffer's dtype (lists and numbers are converted) and shape.

        Raises:
            HalError: INVALID_ARGUMENT: it does not fit; RESOURCE_EXHAUSTED_*. The buffer may be uninitialised then.
        """
        pool, shape = self._checked(value)
        self.holds(None)
        with self._connection.spilled([pool]) as send:
            self._connection.call(self._connection.buffer.CopyFrom, self._copy_from(send(pool), shape))
        self.holds(shape)

    def read(self) -> AnyArray:
        """A copy of the value.

        Raises:
            HalError: GENERAL_FAILURE: the buffer is uninitialised.
        """
        returned = self._connection.call(self._connection.buffer.CopyTo, self._copy_to()).returned
        return self._value(returned, self._connection.fetch(in_memory([returned])))


# ---- Allocation -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Allocation:
    """What `allocate` asks for: the request, and the operand that the buffer can hold."""

    request: device_pb2.AllocateRequest
    operand: Operand


def allocation(session: bytes, device: str, inputs: Roles, outputs: Roles, dimensions: Sequence[int]) -> Allocation:
    """Puts an allocation together.

    Raises:
        HalError: INVALID_ARGUMENT: there is no role, or no input or output of a name or number.
    """
    desc = types_pb2.BufferDesc(dimensions=dimensions)
    request = device_pb2.AllocateRequest(session=session, device=device, desc=desc)
    models: dict[PreparedModelBase, int] = {}
    operand: Operand | None = None
    known = tuple(dimensions)
    for is_output, roles, messages in (
        (False, inputs, request.input_roles),
        (True, outputs, request.output_roles),
    ):
        for model, end in roles:
            index, operand = model.end(end, is_output=is_output)
            known = _merged(known, operand.dimensions)
            role = BufferRole(models.setdefault(model, len(models)), index)
            messages.append(wire.buffer_role_message(role))
    if operand is None:
        raise invalid_argument("a buffer needs a role: an input or an output of a prepared model", "V-ALLOC-02")
    request.prepared_models.extend(model.handle for model in models)
    return Allocation(request, replace(operand, dimensions=known))


def _merged(one: Dimensions, other: Dimensions) -> Dimensions:
    """What two shapes tell together. The service refuses those that contradict each other."""
    if not one or not other:
        return one or other
    return tuple(a or b for a, b in zip(one, other, strict=False))
