"""The memory manager: what may share bytes does, what may not does not, and no more is held than the mode says."""

import random

import numpy as np
import pytest

from driver.backends.memory import ALIGNMENT, MemoryManager, MemoryMode, Piece, Storage
from nnhal.types import Bytes


def counted(sizes: list[int]) -> MemoryManager:
    """A manager whose allocator notes what it is asked for."""

    def allocate(size: int) -> Bytes:
        sizes.append(size)
        return np.zeros(size, np.uint8)

    return MemoryManager(MemoryMode.NORMAL, allocate)


def test_a_piece_that_was_put_back_is_used_again() -> None:
    memory = MemoryManager()
    a = memory.get(100, Storage.DYNAMIC)
    b = memory.get(100, Storage.DYNAMIC)
    memory.put(a)
    c = memory.get(128, Storage.DYNAMIC)
    assert (a.offset, b.offset, c.offset) == (0, 128, 0)
    assert (memory.peak_bytes, memory.sum_bytes) == (256, 384)


def test_gaps_join_the_smallest_is_taken_and_the_last_one_grows() -> None:
    memory = MemoryManager()
    pieces = [memory.get(64 * n, Storage.DYNAMIC) for n in (2, 1, 1, 1, 1)]
    for i in (0, 3, 2):
        memory.put(pieces[i])
    assert memory.get(128, Storage.DYNAMIC).offset == 0, "both gaps fit, and the first of two equal ones is taken"
    assert memory.get(128, Storage.DYNAMIC).offset == 192, "two neighbours became one gap"
    memory.put(pieces[4])
    assert memory.get(128, Storage.DYNAMIC).offset == 320, "the end is 64 bytes away"
    assert memory.peak_bytes == 448


def test_separate_pieces_share_with_nobody() -> None:
    memory = MemoryManager()
    memory.put(memory.get(64, Storage.DYNAMIC))
    separate = memory.get(64, Storage.DYNAMIC_SEPARATE)
    memory.put(separate)
    assert separate.offset == 64
    assert memory.get(64, Storage.DYNAMIC).offset == 0
    assert memory.get(64, Storage.DYNAMIC).offset == 128


def test_static_pieces_outlive_clear() -> None:
    memory = MemoryManager()
    static = memory.get(3, Storage.STATIC)
    memory.bytes(static)[:] = 7
    memory.get(64, Storage.DYNAMIC)
    memory.acquire()
    memory.clear()
    assert memory.bytes(static).tolist() == [7, 7, 7]
    assert (memory.peak_bytes, memory.sum_bytes, memory.is_held) == (0, 0, False)
    memory.put(static)
    with pytest.raises(AssertionError, match="put back"):
        memory.bytes(static)


def test_one_block_from_the_given_allocator() -> None:
    sizes: list[int] = []
    memory = counted(sizes)
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
def test_no_two_live_pieces_overlap(seed: int) -> None:
    rng = random.Random(seed)
    memory = MemoryManager()
    live: list[Piece] = []
    for _ in range(200):
        if live and rng.random() < 0.5:
            memory.put(live.pop(rng.randrange(len(live))))
        storage = Storage.DYNAMIC if rng.random() < 0.9 else Storage.DYNAMIC_SEPARATE
        made = memory.get(rng.randrange(0, 1000), storage)
        for other in live:
            apart = made.offset + made.size <= other.offset or other.offset + other.size <= made.offset
            assert apart or not made.size or not other.size, (made, other)
        assert made.offset + made.size <= memory.peak_bytes
        live.append(made)
    assert memory.peak_bytes < memory.sum_bytes
