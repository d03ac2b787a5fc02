"""Driver-managed buffers (IBuffer), and their use as inputs and outputs of executions (hal-surface 9.7).

A buffer holds one value at a time, and values are immutable. A writer replaces the value atomically; a reader takes the
current value and may keep it. So copies and executions on the same buffer never block each other, and none of them sees
a half-written value.
"""

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nnhal.errors import general_failure, invalid_argument
from nnhal.types import (
    AnyArray,
    BufferToken,
    Bytes,
    Memory,
    OutputShape,
    UnsetUnion,
)
from nnhal_driver.backends.device_memory import DeviceValue
from nnhal_driver.extension_types import ValueType
from nnhal_driver.validation.buffer import (
    Dimensions,
    PreparedModelIO,
    dimension_conflict,
    validate_copy_from,
    validate_copy_to,
)

ReserveMemory = Callable[[int], object]
"""Reserves bytes for the value of a buffer. The reservation ends when the returned object is freed."""


def reserve_nothing(size: int) -> None:
    """Do nothing: memory of buffers is not accounted for."""


Roles = frozenset[tuple[bool, int]]
"""Uses of a buffer in one prepared model: whether it is an output, and the index."""

_EMPTY: Bytes = np.empty(0, np.uint8)


class BufferValue(NamedTuple):
    """Value of a buffer: read-only bytes, or a value in memory of a backend; its shape; and its reserved memory."""

    data: Bytes | DeviceValue
    dimensions: Dimensions
    reservation: object

    def read(self) -> Bytes:
        """Return the bytes, which are copied out of the memory of a backend. Raises as `DeviceMemory.copy`."""
        return on_host(self.data)


def _owns_memory(array: AnyArray) -> bool:
    """Return whether an array, or an array that it is a view of, has memory for its value alone."""
    while isinstance(array.base, np.ndarray) and array.base.nbytes == array.nbytes:
        array = array.base
    return bool(array.flags.owndata)


def on_host(data: Bytes | DeviceValue) -> Bytes:
    """Return bytes, which are copied if they are in memory of a backend. Raises as `DeviceMemory.copy`."""
    return data.to_host().reshape(-1).view(np.uint8) if isinstance(data, DeviceValue) else data


class BufferState:
    """State of a buffer. Executions refer to it, so that it may outlive the buffer. Thread safe.

    Attributes:
        type: type of the value, with the shape of the allocation.
        size: size of the value in bytes; None where the shape is not fully known.
        shape: shape of each value that is written; None where the value decides.
        value: the current value; None while the buffer is uninitialized.

    Raises:
        HalError: what `reserve` raises, if the size is known and too large.
    """

    def __init__(self, type_: ValueType, reserve: ReserveMemory) -> None:
        self.type = type_
        dimensions = type_.operand.dimensions
        self.size = type_.byte_size(dimensions) if type_.is_fully_specified(dimensions) else None
        self.shape = None if self.size is None or type_.is_scalar else dimensions
        self._reserve = reserve
        self._whole = None if self.size is None else reserve(self.size)
        self.value: BufferValue | None = None
        self._lock = threading.Lock()

    def set(self, data: Bytes | DeviceValue, dimensions: Dimensions) -> None:
        """Replace the value by one that does not change any more, and its shape.

        Raises:
            HalError: what `reserve` raises. The buffer is then uninitialized.
        """
        if self.size is not None:
            self.value = BufferValue(data, dimensions, self._whole)
            return
        with self._lock:
            if self.value is not None and self.value.data.nbytes == data.nbytes:
                reservation = self.value.reservation
            else:
                self.value = None  # ends the old reservation first
                reservation = self._reserve(data.nbytes)
            self.value = BufferValue(data, dimensions, reservation)

    def clear(self) -> None:
        """Make the buffer uninitialized."""
        with self._lock:
            self.value = None

    @contextmanager
    def clears_on_error(self) -> Iterator[None]:
        """Make the buffer uninitialized if the body fails."""
        try:
            yield
        except BaseException:
            self.clear()
            raise


class Buffer:
    """IBuffer. Thread safe. Its token becomes unknown when the object is freed.

    Attributes:
        token: positive number, unique among the live buffers of its service.
        roles: its uses, by prepared model. They do not keep the model alive.
    """

    def __init__(self, token: int, state: BufferState, roles: Mapping[PreparedModelIO, Roles]) -> None:
        self.token = token
        self.state = state
        self.roles = weakref.WeakKeyDictionary(roles)

    def copy_from(self, source: Memory | UnsetUnion, dimensions: Dimensions = ()) -> None:
        """Fill the buffer from memory of exactly its size.

        `dimensions`: shape of the data; () where the buffer's own is fully known.

        Raises:
            HalError: INVALID_ARGUMENT (V-POOL, V-TOKEN-05), RESOURCE_EXHAUSTED_*. The buffer is then uninitialized.
        """
        with self.state.clears_on_error():
            shape = validate_copy_from(self.state.type, source, dimensions)
            assert isinstance(source, Memory)
            self.state.set(_read_only(source.view.copy()), shape)

    def copy_to(self, target: Memory | UnsetUnion) -> None:
        """Copy the value to memory of exactly the buffer's size.

        Raises:
            HalError: INVALID_ARGUMENT (V-POOL, V-TOKEN-05); GENERAL_FAILURE: the buffer is uninitialized.
        """
        value = self.state.value
        memory = validate_copy_to(target, value.data.nbytes if value else self.state.size)
        memory.view[:] = _require(value).read()

    def read(self) -> Bytes:
        """Return a copy of the value.

        Raises:
            HalError: GENERAL_FAILURE: the buffer is uninitialized.
        """
        value = _require(self.state.value).read()
        return value if value.flags.writeable else value.copy()


class BufferOutput:
    """Output that lies in a buffer. The buffer receives it once the execution has succeeded."""

    def __init__(self, shape: OutputShape, state: BufferState) -> None:
        self.declared = shape.dimensions
        self.shape = shape
        self.data: Bytes | DeviceValue = _EMPTY
        self._state = state

    def write(self, array: Any, *, keep: bool = False) -> None:
        """Keep the value, or a copy of it. A `DeviceValue` is kept.

        Raises:
            HalError: GENERAL_FAILURE, V-TOKEN-06: the buffer was allocated for another shape.
        """
        state = self._state
        if array.shape != state.shape or array.nbytes != state.size or array.shape != self.declared:
            self.shape = self._checked_shape(array)
        if isinstance(array, DeviceValue):
            self.data = array
        elif keep and array.flags.c_contiguous and _owns_memory(array):
            self.data = _read_only(array.reshape(-1).view(np.uint8))
        elif array.nbytes:
            self.data = np.frombuffer(array.tobytes(), np.uint8)  # one copy, read-only

    def _checked_shape(self, array: Any) -> OutputShape:
        """Return the shape of a value that may not fit the buffer."""
        type_ = self._state.type
        shape = () if type_.is_scalar else array.shape
        conflict = dimension_conflict(shape, type_.operand.dimensions)
        if conflict is None and array.nbytes != type_.byte_size(shape):
            conflict = f"{array.nbytes} bytes for shape {list(shape)}"
        if conflict is not None:
            raise general_failure(f"an output has {conflict} in its buffer", "V-TOKEN-06")
        return OutputShape(shape)

    def commit(self) -> None:
        """Make the output the value of the buffer. Call it when the execution has succeeded.

        Raises:
            HalError: RESOURCE_EXHAUSTED_*: there is no memory for it.
        """
        self._state.set(self.data, self.shape.dimensions)

    def discard(self) -> None:
        """Make the buffer uninitialized. Call it when the execution has no outputs."""
        self._state.clear()


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedBuffer(BufferToken):
    """Token of a known buffer with its state. The client may free the buffer meanwhile."""

    state: BufferState


class BufferReader:
    """Values of the buffers that one execution reads. Inputs that share a buffer get the same value."""

    def __init__(self) -> None:
        self._values: dict[BufferState, BufferValue | None] = {}

    def read(self, pool: ResolvedBuffer, dimensions: Dimensions, name: str) -> Bytes | DeviceValue:
        """Return the value of an input. `dimensions`: its shape according to model and request; `name`: for messages.

        Raises:
            HalError: GENERAL_FAILURE, V-TOKEN-02: the buffer is uninitialized; INVALID_ARGUMENT, V-TOKEN-04: its value
                has another shape.
        """
        state = pool.state
        if state not in self._values:
            self._values[state] = state.value
        value = self._values[state]
        if value is None:
            raise general_failure(f"{name} lies in a buffer that is uninitialized", "V-TOKEN-02")
        if dimensions != value.dimensions:
            shapes = f"{list(dimensions)}, but its buffer holds {list(value.dimensions)}"
            raise invalid_argument(f"{name} has shape {shapes}", "V-TOKEN-04")
        return value.data


def _require(value: BufferValue | None) -> BufferValue:
    if value is None:
        raise general_failure("the buffer is uninitialized", "V-TOKEN-05")
    return value


def _read_only(data: Bytes) -> Bytes:
    data.flags.writeable = False
    return data
