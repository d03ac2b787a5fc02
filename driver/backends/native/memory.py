"""Planned memory of what a native plug-in compiles: `NnhalMemory` over the planner of `driver.backends.memory`."""

import ctypes as c
import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from driver.backends.memory import MemoryManager, MemoryMode, Piece, Storage, aligned
from driver.backends.native import abi
from driver.backends.native.library import Table
from nnhal.types import Bytes, ErrorStatus

_STORAGE = {0: Storage.STATIC, 1: Storage.DYNAMIC, 2: Storage.DYNAMIC_SEPARATE}
_MODES = {MemoryMode.NORMAL: 0, MemoryMode.LIMIT: 1}
_MOST_BYTES = 2**47
"""That a process can address; what asks for more is an error of the plug-in."""

Addresses: TypeAlias = "c.Array[c.c_void_p] | None"
"""Where each piece lies; None where there are none."""

_log = logging.getLogger(__name__)


def allocated(table: Table, size: int) -> Bytes:
    """Memory of `size` bytes at a multiple of 64, from the plug-in's allocator where it has one.

    Raises:
        MemoryError: there is not enough.
    """
    if size == 0 or not table.has("allocate_buffer"):
        return aligned(size)
    address = table.call("allocate_buffer", size)
    if not address:
        raise MemoryError(f"the backend cannot allocate {size} bytes")
    block = _Block(address, size)
    weakref.finalize(block, table.call, "free_buffer", address, size).atexit = False
    return np.asarray(block)


class _Block:
    """Memory of the plug-in's allocator. Arrays over it keep this object alive."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


class Pieces:
    """The pieces that one compiled subgraph of a plug-in has asked for, by number.

    Attributes:
        manager: plans them.
    """

    def __init__(self, table: Table, mode: MemoryMode) -> None:
        self.manager = MemoryManager(mode, lambda size: allocated(table, size))
        self._mode = mode
        self._pieces: list[Piece | None] = []
        self._put: set[int] = set()
        self._planning = True
        self._addresses: Addresses = None

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._pieces)

    def struct(self) -> abi.Memory:
        """What the plug-in gets; it holds this."""
        return abi.Memory(
            c.sizeof(abi.Memory),
            None,
            _MODES[self._mode],
            abi.GetFunction(lambda _, *asked: self._get(*asked)),
            abi.PutFunction(lambda _, number: self._give_back(number)),
            abi.BytesFunction(lambda _, number: self._bytes(number)),
            abi.ClearFunction(lambda _: self._clear()),
        )

    def close(self) -> None:
        """Ends the planning."""
        self._planning = False

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Lets the plug-in plan again."""
        self._planning = True
        try:
            yield
        finally:
            self._planning = False

    @contextmanager
    def held(self) -> Iterator[Addresses]:
        """The block, for an execution: the addresses of all pieces; None where there are none.

        Raises:
            MemoryError: there is not enough.
        """
        if not self._pieces:
            yield None
            return
        if not self.manager.is_held or self._addresses is None:
            self.manager.acquire()
            addresses = [None if one is None else self.manager.bytes(one).ctypes.data for one in self._pieces]
            self._addresses = (c.c_void_p * len(addresses))(*addresses)
        try:
            yield self._addresses
        finally:
            self.manager.release()

    def _get(self, size: int, storage: int, number: Any) -> int:
        if not self._planning or storage not in _STORAGE or self.manager.sum_bytes + size > _MOST_BYTES:
            return ErrorStatus.INVALID_ARGUMENT
        try:
            piece = self.manager.get(size, _STORAGE[storage])
        except MemoryError as error:
            _log.warning("a native backend asked for %d bytes: %s", size, error)
            return ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        self._addresses = None
        number[0] = len(self._pieces)
        self._pieces.append(piece)
        return ErrorStatus.NONE

    def _give_back(self, number: int) -> int:
        piece = self._known(number)
        if not self._planning or piece is None or number in self._put:
            return ErrorStatus.INVALID_ARGUMENT
        self.manager.put(piece)
        self._addresses = None
        if piece.storage is Storage.STATIC:
            self._pieces[number] = None
        else:
            self._put.add(number)
        return ErrorStatus.NONE

    def _bytes(self, number: int) -> int | None:
        piece = self._known(number)
        if piece is None or piece.storage is not Storage.STATIC:
            return None
        return self.manager.bytes(piece).ctypes.data

    def _clear(self) -> None:
        if not self._planning:
            return
        self.manager.clear()
        self._addresses = None
        self._put.clear()
        self._pieces = [one if one is not None and one.storage is Storage.STATIC else None for one in self._pieces]
        while self._pieces and self._pieces[-1] is None:
            self._pieces.pop()

    def _known(self, number: int) -> Piece | None:
        return self._pieces[number] if number < len(self._pieces) else None
