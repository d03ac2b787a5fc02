"""Driver-managed buffers: tensors that stay on the device, between executions of one model or of several.

with device.allocate(outputs=[(first, "features")], inputs=[(second, 0)]) as features:
    first.execute([image], outputs={"features": features})
    scores = second.execute([features])[0]

What both clients share is here too: `nnhal.aio_buffer` has the buffer for asyncio.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.errors import general_failure, invalid_argument
from nnhal.prepared import PreparedModelBase
from nnhal.tensors import Ends, Inputs, Named, Outputs, checked_array, output_array
from nnhal.types import (
    DTYPES,
    AnyArray,
    BufferRole,
    BufferToken,
    Bytes,
    DataLocation,
    ExecutionResult,
    Memory,
    Operand,
    Request,
    RequestArgument,
    ReturnedPool,
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

    def __init__(
        self, allocated: device_pb2.AllocateResponse, operand: Operand, discard: Callable[[bytes], None]
    ) -> None:
        self.operand = operand
        self.token = allocated.token
        self._shape: Dimensions | None = None
        self._handle = allocated.buffer
        self._finalizer = weakref.finalize(self, discard, allocated.buffer)
        self._finalizer.atexit = False

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

    def _array(self, value: ArrayLike) -> AnyArray:
        return checked_array(self.operand, value, "the value", "the buffer")

    def _copy_from(self, session: bytes, source: types_pb2.Memory, shape: Dimensions) -> buffer_pb2.CopyFromRequest:
        return buffer_pb2.CopyFromRequest(session=session, buffer=self._handle, src=source, dimensions=shape)

    def _copy_to(self, session: bytes) -> buffer_pb2.CopyToRequest:
        return buffer_pb2.CopyToRequest(session=session, buffer=self._handle)

    def _value_shape(self, array: AnyArray) -> Dimensions:
        return array.shape if is_tensor(self.operand.type) else ()

    def _value(self, data: Bytes) -> AnyArray:
        """The value as an array.

        Raises:
            HalError: GENERAL_FAILURE: its shape is not known here.
        """
        shape = self.shape
        if shape is None or byte_size(self.operand.type, shape) != data.size:
            raise general_failure(f"the buffer holds {data.size} bytes that somebody else wrote: of what shape?")
        return output_array(self.operand, data, shape)


class Buffer(BufferBase):
    """A driver-managed buffer. Thread safe. The service lets it go when this object is closed or collected."""

    def __init__(self, connection: "Connection", allocated: device_pb2.AllocateResponse, operand: Operand) -> None:
        super().__init__(allocated, operand, connection.discard)
        self._connection = connection

    def write(self, value: ArrayLike) -> None:
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
            send = self._connection.place([pool], handles, lasting=False)
            request = self._copy_from(self._connection.session, send(pool), shape)
            self._connection.call(self._connection.buffer.CopyFrom, request)
        finally:
            self._connection.discard(*handles)
        self.holds(shape)

    def read(self) -> AnyArray:
        """A copy of the value.

        Raises:
            HalError: GENERAL_FAILURE: the buffer is uninitialised.
        """
        request = self._copy_to(self._connection.session)
        returned = self._connection.call(self._connection.buffer.CopyTo, request).returned
        if returned.WhichOneof("data") != "memory":
            return self._value(np.frombuffer(returned.inline, np.uint8))
        try:
            return self._value(self._connection.read_memory(returned.memory))
        finally:
            self._connection.discard(returned.memory)

    def close(self) -> None:
        """Lets the buffer go. Executions in progress finish."""
        self._finalizer()

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- Allocation -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Allocation:
    """What `allocate` asks for: the request, without session and device, and the operand that the buffer can hold."""

    request: device_pb2.AllocateRequest
    operand: Operand


def allocation(inputs: Roles, outputs: Roles, dimensions: Sequence[int]) -> Allocation:
    """Puts an allocation together.

    Raises:
        HalError: INVALID_ARGUMENT: there is no role, or no input or output of a name or number.
    """
    request = device_pb2.AllocateRequest(desc=types_pb2.BufferDesc(dimensions=dimensions))
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


# ---- Execution ------------------------------------------------------------------------------------------

BufferInputs: TypeAlias = Sequence[ArrayLike | BufferBase | None] | Mapping[str, ArrayLike | BufferBase | None]
"""As `Inputs`, with buffers in place of arrays where wanted."""

Targets: TypeAlias = Sequence[BufferBase | None] | Mapping[int, BufferBase] | Mapping[str, BufferBase]
"""Buffers for outputs, by position or by name; None, or one left out, comes back as an array."""


class BufferOutputs(Named[AnyArray | BufferBase]):
    """Outputs of an execution: arrays, and in place of those that went to buffers the buffers."""


def without_buffers(inputs: BufferInputs, outputs: Targets | None) -> Inputs | None:
    """The inputs of an execution that uses no buffers; None where it uses some."""
    values = inputs.values() if isinstance(inputs, Mapping) else inputs
    if outputs is not None or any(isinstance(value, BufferBase) for value in values):
        return None
    return cast(Inputs, inputs)


class BufferedExecution:
    """One execution that uses buffers.

    Attributes:
        request: has a pool for each array and each buffer, and one that grows for the other outputs.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not fit, or there is no output of a name or number.
    """

    def __init__(self, ends: Ends, inputs: BufferInputs, outputs: Targets | None) -> None:
        self._ends = ends
        self._all_return = outputs is None
        self._targets = _targets(ends, outputs)
        self._pools: list[Memory | BufferToken | ReturnedPool] = [ReturnedPool()]
        values: Sequence[ArrayLike | BufferBase | None] = ends.by_position(inputs)
        arguments = tuple(self._input(i, value) for i, value in enumerate(values))
        results = tuple(self._output(target) for target in self._targets)
        self.request = Request(arguments, results, tuple(self._pools))

    def results(self, result: ExecutionResult) -> Outputs | BufferOutputs:
        """The outputs of a result: arrays alone where no output was given a buffer."""
        if self._all_return:
            return self._ends.results(result)
        returned = result.returned or (None,) * len(self._targets)
        found: list[AnyArray | BufferBase] = []
        for operand, target, data, shape in zip(
            self._ends.outputs, self._targets, returned, result.output_shapes, strict=True
        ):
            if target is None:
                found.append(output_array(operand, data, shape.dimensions))
            else:
                target.holds(shape.dimensions)
                found.append(target)
        return BufferOutputs.of(found, self._ends.output_names, result.timing)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Surrounds the call: when it fails, what it was to fill is uninitialised."""
        try:
            yield
        except BaseException:
            for target in self._targets:
                if target is not None:
                    target.holds(None)
            raise

    def _input(self, index: int, value: ArrayLike | BufferBase | None) -> RequestArgument:
        operand = self._ends.inputs[index]
        if isinstance(value, BufferBase):
            shape = value.shape
            if shape is None:
                raise general_failure(f"input {index} lies in a buffer that is uninitialised", "V-TOKEN-02")
            location, pool = DataLocation(len(self._pools)), BufferToken(value.token)
            self._pools.append(pool)
            return RequestArgument(False, location, _open_shape(operand, shape))
        array = self._ends.checked(index, value)
        if array is None:
            return RequestArgument(has_no_value=True)
        location = DataLocation(len(self._pools), 0, array.nbytes)
        self._pools.append(Memory.of(array))
        return RequestArgument(False, location, _open_shape(operand, array.shape))

    def _output(self, target: BufferBase | None) -> RequestArgument:
        if target is None:
            return RequestArgument()
        self._pools.append(BufferToken(target.token))
        return RequestArgument(False, DataLocation(len(self._pools) - 1))


def _open_shape(operand: Operand, shape: Dimensions) -> Dimensions:
    """What a request must say of an input's shape: nothing where the model says it."""
    return () if is_fully_specified(operand.type, operand.dimensions) else shape


def _targets(ends: Ends, outputs: Targets | None) -> list[BufferBase | None]:
    """A buffer or None for each output."""
    count = len(ends.outputs)
    found: list[BufferBase | None] = [None] * count
    if isinstance(outputs, Mapping):
        for end, buffer in outputs.items():
            found[ends.index(end, is_output=True)] = buffer
    elif outputs is not None:
        if len(outputs) != count:
            raise invalid_argument(f"{len(outputs)} outputs given; the model has {count}")
        found[:] = outputs
    return found
