"""The memory manager: pieces with separate lifetimes share bytes, and the mode decides when the block is freed."""

import random

import numpy as np
import pytest

from nnhal.alignment import ALIGNMENT
from nnhal.types import Bytes
from nnhal_driver.backends.memory import MemoryManager, MemoryMode, Piece, Storage


def recording_manager(sizes: list[int]) -> MemoryManager:
    """Return a manager whose allocator records the requested sizes."""

    def allocate(size: int) -> Bytes:
        sizes.append(size)
        return np.zeros(size, np.uint8)

    return MemoryManager(MemoryMode.NORMAL, allocate)


def test_returned_piece_is_reused() -> None:
    memory = MemoryManager()
    a = memory.get(100, Storage.DYNAMIC)
    b = memory.get(100, Storage.DYNAMIC)
    memory.put(a)
    c = memory.get(128, Storage.DYNAMIC)
    assert (a.offset, b.offset, c.offset) == (0, 128, 0)
    assert (memory.peak_bytes, memory.sum_bytes) == (256, 384)


def test_gaps_are_merged_and_the_smallest_one_is_used() -> None:
    memory = MemoryManager()
    pieces = [memory.get(64 * n, Storage.DYNAMIC) for n in (2, 1, 1, 1, 1)]
    for i in (0, 3, 2):
        memory.put(pieces[i])
    assert memory.get(128, Storage.DYNAMIC).offset == 0, "both gaps have the same size, and the first is used"
    assert memory.get(128, Storage.DYNAMIC).offset == 192, "two adjacent gaps are one"
    memory.put(pieces[4])
    assert memory.get(128, Storage.DYNAMIC).offset == 320, "the last gap has 64 bytes, and the block grows"
    assert memory.peak_bytes == 448


@pytest.mark.parametrize("storage", Storage)
def test_size_is_not_negative(storage: Storage) -> None:
    memory = MemoryManager()
    with pytest.raises(ValueError, match="-5 bytes; expected 0 or more"):
        memory.get(-5, storage)
    assert (memory.peak_bytes, memory.sum_bytes) == (0, 0)
    assert memory.bytes(memory.get(0, Storage.STATIC)).size == 0


def test_separate_pieces_share_no_bytes() -> None:
    memory = MemoryManager()
    memory.put(memory.get(64, Storage.DYNAMIC))
    separate = memory.get(64, Storage.DYNAMIC_SEPARATE)
    memory.put(separate)
    assert separate.offset == 64
    assert memory.get(64, Storage.DYNAMIC).offset == 0
    assert memory.get(64, Storage.DYNAMIC).offset == 128


def test_clear_keeps_static_pieces() -> None:
    memory = MemoryManager()
    static = memory.get(3, Storage.STATIC)
    memory.bytes(static)[:] = 7
    memory.get(64, Storage.DYNAMIC)
    memory.acquire()
    memory.clear()
    assert memory.bytes(static).tolist() == [7, 7, 7]
    assert (memory.peak_bytes, memory.sum_bytes, memory.is_held) == (0, 0, False)
    memory.put(static)
    with pytest.raises(AssertionError, match="released"):
        memory.bytes(static)


def test_custom_allocator_is_called_once() -> None:
    sizes: list[int] = []
    memory = recording_manager(sizes)
    pieces = [memory.get(10, Storage.DYNAMIC) for _ in range(3)]
    with pytest.raises(AssertionError, match="between acquire and release"):
        memory.bytes(pieces[0])
    for _ in range(2):
        memory.acquire()
        memory.release()
    assert sizes == [192]
    assert memory.bytes(pieces[2]).nbytes == 10


def test_pieces_are_aligned() -> None:
    memory = MemoryManager()
    pieces = [memory.get(n, Storage.DYNAMIC) for n in (1, 65, 0, 3)]
    memory.acquire()
    for piece in (*pieces, memory.get(5, Storage.STATIC)):
        assert memory.bytes(piece).ctypes.data % ALIGNMENT == 0 or piece.size == 0


@pytest.mark.parametrize("seed", range(40))
def test_live_pieces_do_not_overlap(seed: int) -> None:
    rng = random.Random(seed)
    memory = MemoryManager()
    live: list[Piece] = []
    for _ in range(200):
        if live and rng.random() < 0.5:
            memory.put(live.pop(rng.randrange(len(live))))
        storage = Storage.DYNAMIC if rng.random() < 0.9 else Storage.DYNAMIC_SEPARATE
        piece = memory.get(rng.randrange(0, 1000), storage)
        for other in live:
            disjoint = piece.offset + piece.size <= other.offset or other.offset + other.size <= piece.offset
            assert disjoint or not piece.size or not other.size, (piece, other)
        assert piece.offset + piece.size <= memory.peak_bytes
        live.append(piece)
    assert memory.peak_bytes < memory.sum_bytes


@pytest.mark.parametrize(("mode", "blocks"), [(MemoryMode.NORMAL, 1), (MemoryMode.LIMIT, 3)])
def test_owner_is_told_of_each_new_block(mode: MemoryMode, blocks: int) -> None:
    told: list[Bytes] = []
    memory = MemoryManager(mode)
    memory.on_allocate = told.append
    memory.acquire()  # there are no pieces
    memory.release()
    piece = memory.get(100, Storage.DYNAMIC)
    for _ in range(3):
        memory.acquire()
        assert np.shares_memory(memory.bytes(piece), told[-1]) and told[-1].size == memory.peak_bytes
        memory.release()
    assert len(told) == blocks
    memory.clear()
    memory.get(1000, Storage.DYNAMIC)
    memory.acquire()
    assert len(told) == blocks + 1 and told[-1].size >= 1000
