"""Driver-managed buffers: the common base of both clients, and requests that allocate buffers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.client.core.arguments import type_error
from nnhal.client.core.arrays import (
    convert_array,
    has_fixed_shape,
    is_scalar,
    output_array,
    require_dtype,
    value_shape,
    value_size,
)
from nnhal.client.core.handles import AnyConnection, description, release_with
from nnhal.client.core.prepared_model import PreparedModelBase
from nnhal.client.core.session import lost_error
from nnhal.errors import argument_error, general_failure
from nnhal.types import (
    AnyArray,
    BufferRole,
    Bytes,
    Memory,
    Operand,
    describe_operands,
)
from nnhal.v1 import device_pb2, types_pb2

Dimensions = tuple[int, ...]
Roles: TypeAlias = Iterable[tuple[PreparedModelBase, int | str]]
"""Uses of a buffer: prepared models, each with the position or the name of an input or output."""


class BufferBase:
    """Buffer of the device, without the calls that write and read it.

    Attributes:
        operand: type, quantization and shape of its values; 0 and () in the shape are unknown.
        token: its number in requests.
    """

    def __init__(self, connection: AnyConnection, allocated: device_pb2.AllocateResponse, operand: Operand) -> None:
        self.operand = operand
        self.token = allocated.token
        self._shape: Dimensions | None = None
        self._connection = connection
        self._session = connection.session
        self._handle = allocated.buffer
        self._finalizer = release_with(self, connection.discard, allocated.buffer)

    def require_session(self) -> None:
        """Check that the buffer still exists. Its number may be that of another buffer in the next session.

        Raises:
            SessionLostError: it was lost with its session.
        """
        if self._connection.lost:
            raise lost_error()

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Type of its elements."""
        return require_dtype(self.operand)

    @property
    def shape(self) -> Dimensions | None:
        """Shape of its value: the declared one if fully known, or else the last one written here; None before that."""
        declared = self.operand.dimensions
        return declared if has_fixed_shape(self.operand) else self._shape

    def set_shape(self, shape: Dimensions | None) -> None:
        """Set the shape of a new value, or None after a write that failed."""
        self._shape = shape

    def _convert(self, value: ArrayLike) -> tuple[Memory, Dimensions]:
        """Return the bytes and the shape of a new value."""
        array = convert_array(self.operand, value, "the value", "the buffer")
        return Memory.of(array), () if is_scalar(self.operand) else value_shape(self.operand, array)

    def _to_array(self, returned: types_pb2.ReturnedOutput, memories: Mapping[bytes, Bytes]) -> AnyArray:
        """Return the value of the buffer as an array, given the bytes of Memory objects by handle.

        Raises:
            HalError: GENERAL_FAILURE: the shape is not known here.
        """
        data = memories[returned.memory] if returned.memory else np.frombuffer(returned.inline, np.uint8)
        shape = self.shape
        if shape is None or value_size(self.operand, shape) != data.size:
            raise general_failure(
                f"the buffer holds {data.size} bytes of unknown shape, written through another object"
            )
        return output_array(self.operand, data, shape)

    def __repr__(self) -> str:
        details = f"{self.token}: {describe_operands([self.operand])}"
        return description(self, details, closed=not self._finalizer.alive)


# ---- Allocation -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BufferAllocation:
    """Request that allocates a buffer, and the operand that describes its values."""

    request: device_pb2.AllocateRequest
    operand: Operand


def allocation(
    session: bytes, device: str, inputs: Roles, outputs: Roles, dimensions: Sequence[int]
) -> BufferAllocation:
    """Return the request that allocates a buffer.

    Raises:
        HalError: INVALID_ARGUMENT: there is no role, or a role names an unknown input or output.
    """
    desc = types_pb2.BufferDesc(dimensions=dimensions)
    request = device_pb2.AllocateRequest(session=session, device=device, desc=desc)
    models: dict[PreparedModelBase, int] = {}
    operand: Operand | None = None
    shape = tuple(dimensions)
    for is_output, roles, messages in (
        (False, inputs, request.input_roles),
        (True, outputs, request.output_roles),
    ):
        for model, key in check_roles(roles):
            index, operand = model.io_operand(key, is_output=is_output)
            shape = _merge_dimensions(shape, operand.dimensions)
            role = BufferRole(models.setdefault(model, len(models)), index)
            messages.append(wire.buffer_role_message(role))
    if operand is None:
        raise argument_error("a buffer needs a role: an input or an output of a prepared model", "V-ALLOC-02")
    request.prepared_models.extend(model.handle for model in models)
    return BufferAllocation(request, replace(operand, dimensions=shape))


def check_roles(roles: Roles) -> Iterator[tuple[PreparedModelBase, int | str]]:
    """Yield the roles.

    Raises:
        TypeError: one of them is not a prepared model with a position or a name.
    """
    expected = "a list of pairs of a prepared model and a position or name"
    if not isinstance(roles, Iterable):
        raise type_error("a role list", roles, expected)
    for role in roles:
        if not (isinstance(role, tuple | list) and len(role) == 2 and isinstance(role[0], PreparedModelBase)):
            raise type_error("a role", role, expected)
        yield role


def _merge_dimensions(first: Dimensions, second: Dimensions) -> Dimensions:
    """Return the dimensions known from either shape. The service rejects shapes that contradict each other."""
    if not first or not second:
        return first or second
    return tuple(a or b for a, b in zip(first, second, strict=False))
