"""Planned memory of a native plug-in's subgraph: `NnhalMemory` over `nnhal_driver.backends.memory`."""

import ctypes as c
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from nnhal.errors import exception_text
from nnhal.types import Bytes, ErrorStatus
from nnhal_driver.backends.allocators import CustomAllocator, memory_at
from nnhal_driver.backends.memory import MemoryManager, MemoryMode, Piece, Storage, allocate_aligned
from nnhal_driver.backends.native import abi
from nnhal_driver.backends.native.library import FunctionTable

_STORAGE = {0: Storage.STATIC, 1: Storage.DYNAMIC, 2: Storage.DYNAMIC_SEPARATE}
_MODES = {MemoryMode.NORMAL: 0, MemoryMode.LIMIT: 1}
_MAX_BYTES = 2**47
"""Address space of a process. A larger request is an error of the plug-in."""

Addresses: TypeAlias = "c.Array[c.c_void_p] | None"
"""Address of each piece; None if there are no pieces."""

_log = logging.getLogger(__name__)


def allocate_buffer(table: FunctionTable, size: int) -> Bytes:
    """Return memory at a multiple of 64, from the allocator that the plug-in uses or has, or else from the host.

    Raises:
        MemoryError: there is not enough memory.
    """
    if size and table.allocate is not None:
        return table.allocate(size)
    if size == 0 or not table.has("allocate_buffer"):
        return allocate_aligned(size)
    address = table.call("allocate_buffer", size)
    if not address:
        raise MemoryError(f"the backend cannot allocate {size} bytes")
    return memory_at(address, size, lambda: table.call("free_buffer", address, size))


def allocator_struct(allocator: CustomAllocator) -> abi.Allocator:
    """Return the struct of an allocator that a plug-in gets. It keeps the allocator alive."""

    def allocate(_: int, size: int, alignment: int) -> int | None:
        try:
            return allocator.allocate(size, alignment)
        except BaseException as error:  # it cannot pass through C
            _log.warning("the allocator failed: %s", exception_text(error))
            return None

    def free(_: int, memory: int) -> None:
        try:
            allocator.free(memory)
        except BaseException as error:
            _log.warning("the allocator failed to free: %s", exception_text(error))

    return abi.Allocator(
        c.sizeof(abi.Allocator), None, allocator.source, abi.AllocateFunction(allocate), abi.FreeFunction(free)
    )


class PlannedMemory:
    """Pieces of memory that one compiled subgraph of a plug-in requested, by number.

    Attributes:
        planning: whether the plug-in may request pieces.
    """

    def __init__(self, table: FunctionTable, mode: MemoryMode) -> None:
        self.manager = MemoryManager(mode, lambda size: allocate_buffer(table, size))
        self._mode = mode
        self._pieces: list[Piece | None] = []
        self._released: set[int] = set()
        self.planning = True
        self._addresses: Addresses = None

    def __bool__(self) -> bool:
        """Return whether there are pieces."""
        return bool(self._pieces)

    def struct(self) -> abi.Memory:
        """Return the struct that the plug-in gets. It keeps this object alive."""
        return abi.Memory(
            c.sizeof(abi.Memory),
            None,
            _MODES[self._mode],
            abi.GetFunction(lambda _, *arguments: self._get(*arguments)),
            abi.PutFunction(lambda _, number: self._put_piece(number)),
            abi.BytesFunction(lambda _, number: self._bytes(number)),
            abi.ClearFunction(lambda _: self._clear()),
        )

    @contextmanager
    def acquire(self) -> Iterator[Addresses]:
        """Acquire the block for an execution and yield the addresses of all pieces.

        Raises:
            MemoryError: there is not enough memory.
        """
        if not self._pieces:
            yield None
            return
        if not self.manager.is_held or self._addresses is None:
            self.manager.acquire()
            addresses = [None if piece is None else self.manager.bytes(piece).ctypes.data for piece in self._pieces]
            self._addresses = (c.c_void_p * len(addresses))(*addresses)
        try:
            yield self._addresses
        finally:
            self.manager.release()

    def _get(self, size: int, storage: int, number: Any) -> int:
        if not self.planning or storage not in _STORAGE or self.manager.sum_bytes + size > _MAX_BYTES:
            return ErrorStatus.INVALID_ARGUMENT
        try:
            piece = self.manager.get(size, _STORAGE[storage])
        except MemoryError as error:
            _log.warning("a native backend requested %d bytes: %s", size, error)
            return ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        self._addresses = None
        number[0] = len(self._pieces)
        self._pieces.append(piece)
        return ErrorStatus.NONE

    def _put_piece(self, number: int) -> int:
        piece = self._piece(number)
        if not self.planning or piece is None or number in self._released:
            return ErrorStatus.INVALID_ARGUMENT
        self.manager.put(piece)
        self._addresses = None
        if piece.storage is Storage.STATIC:
            self._pieces[number] = None
        else:
            self._released.add(number)
        return ErrorStatus.NONE

    def _bytes(self, number: int) -> int | None:
        piece = self._piece(number)
        if piece is None or piece.storage is not Storage.STATIC:
            return None
        return self.manager.bytes(piece).ctypes.data

    def _clear(self) -> None:
        if not self.planning:
            return
        self.manager.clear()
        self._addresses = None
        self._released.clear()
        self._pieces = [piece if piece and piece.storage is Storage.STATIC else None for piece in self._pieces]
        while self._pieces and self._pieces[-1] is None:
            self._pieces.pop()

    def _piece(self, number: int) -> Piece | None:
        return self._pieces[number] if number < len(self._pieces) else None
