"""Memory of a backend, in which values stay between its partitions (since 1.2).

    class Npu(DeviceMemory):
        def acquire(self, shape, dtype):
            return NpuBuffer(shape, dtype)

        def copy(self, source, target):
            ...  # between an array and a buffer, in both directions, or between two buffers

    compiled.device_operands = dict.fromkeys((*subgraph.inputs, *subgraph.outputs), npu)

The host calls `copy` only where a value enters or leaves this memory, and not between partitions with the same memory.
"""

from abc import ABC, abstractmethod
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from nnhal.types import AnyArray


class DeviceBuffer(Protocol):
    """A value in memory of a backend. It is freed with the last reference to it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value, in the model's layout."""

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Dtype of the value in the model."""


class DeviceMemory(ABC):
    """Memory of a backend. Several threads call its methods at the same time."""

    @abstractmethod
    def acquire(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> DeviceBuffer:
        """Return a new buffer. Its contents are undefined.

        Raises:
            MemoryError: there is not enough memory.
        """

    @abstractmethod
    def copy(self, source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
        """Copy a value to a target of the same shape and dtype: into this memory, out of it, or within it.

        Layouts of the backend's own are its own matter: it converts here. After a copy into an array, the value is
        there. Other copies may be in progress, if the device does all of its work in order.

        Args:
            source: a read-only array, or a buffer of this memory.
            target: a row-major array, or a buffer of this memory.

        Raises:
            HalError: the copy fails.
        """

    def keep(self, buffer: DeviceBuffer) -> bool:
        """Wait until a value is computed. Return whether it may stay here as the value of a driver-managed buffer.

        The host then copies it only where the client or other backends read it. It may live longer than the model
        that wrote it. By default, the host copies it at the end of the execution.

        Raises:
            HalError: the computation fails.
        """
        return False

    def to_own(self, array: AnyArray) -> DeviceBuffer:
        """Return a buffer with the value of an array. The host calls it; there is no need to override it."""
        buffer = self.acquire(array.shape, array.dtype)
        self.copy(array, buffer)
        return buffer

    def to_host(self, buffer: DeviceBuffer) -> AnyArray:
        """Return an array with the value of a buffer. The host calls it; there is no need to override it."""
        array: AnyArray = np.empty(buffer.shape, buffer.dtype)
        self.copy(buffer, array)
        return array

    def duplicate(self, buffer: DeviceBuffer) -> DeviceBuffer:
        """Return another buffer with the value of one. The host calls it; there is no need to override it."""
        copy = self.acquire(buffer.shape, buffer.dtype)
        self.copy(buffer, copy)
        return copy


class DeviceValue(NamedTuple):
    """Value that stays in memory of a backend, in place of an array of the host."""

    memory: DeviceMemory
    buffer: DeviceBuffer

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.buffer.shape

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return prod(self.buffer.shape) * self.buffer.dtype.itemsize

    def to_host(self) -> AnyArray:
        """Return a copy as an array. Raises as `DeviceMemory.copy`."""
        return self.memory.to_host(self.buffer)
