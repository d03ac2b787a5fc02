"""Memory of a backend whose exceptions are translated."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.backends.boundary.calls import Named, call
from nnhal_driver.backends.device_memory import DeviceBuffer, DeviceMemory


@dataclass(frozen=True, slots=True, eq=False)
class CheckedMemory(DeviceMemory):
    """Memory of a backend. Two objects are equal if they are for the same memory."""

    backend: Named
    memory: DeviceMemory

    def __hash__(self) -> int:
        return id(self.memory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckedMemory) and other.memory is self.memory

    def acquire(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> DeviceBuffer:
        """Return a new buffer.

        Raises:
            HalError: the backend fails.
            MemoryError: there is not enough memory.
        """
        return call(self.backend, "acquire", self.memory.acquire, shape, dtype)

    def copy(self, source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
        """Copy a value. Raises as `acquire`."""
        call(self.backend, "copy", self.memory.copy, source, target)
