"""Allocator of ordinary memory that keeps account."""

from nnhal_driver.backends.allocators import MemorySource
from nnhal_driver.backends.memory import allocate_aligned


class CountingAllocator:
    """Allocator that counts.

    Attributes:
        live: sizes of the allocations, by address.
        sizes: sizes of all allocations since the start.
    """

    source = MemorySource.OTHER

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.sizes: list[int] = []
        self._arrays: dict[int, object] = {}

    def allocate(self, size: int, alignment: int) -> int:
        array = allocate_aligned(size + alignment)
        address = array.ctypes.data + -array.ctypes.data % alignment
        self._arrays[address] = array
        self.live[address] = size
        self.sizes.append(size)
        return address

    def free(self, address: int) -> None:
        del self.live[address]
        del self._arrays[address]
