"""Large memory has a mapping of its own, small memory does not."""

import os

import numpy as np
import pytest

from nnhal_driver.mapped_memory import MAPPED_BYTES, allocate, in_own_mapping, read_at


@pytest.mark.parametrize("size", [1, 4097, MAPPED_BYTES - 1, MAPPED_BYTES, MAPPED_BYTES + 5])
def test_memory_is_zero_and_writable(size: int) -> None:
    memory = allocate(size)
    assert (memory.dtype, memory.shape) == (np.uint8, (size,))
    assert not memory.any()
    memory[-1] = 7
    assert in_own_mapping(memory[1:].view()) == (size >= MAPPED_BYTES)


def test_small_memory_need_not_be_zero() -> None:
    assert allocate(10, zeroed=False).shape == (10,)


@pytest.mark.parametrize("size", [2**50, 2**70], ids=["more than there is", "no address"])
def test_impossible_sizes_are_memory_errors(size: int) -> None:
    with pytest.raises(MemoryError, match="cannot map"):
        allocate(size)


def test_other_arrays_are_not_in_an_own_mapping() -> None:
    assert not in_own_mapping(np.zeros(MAPPED_BYTES, np.uint8))
    assert not in_own_mapping(np.frombuffer(b"bytes", np.uint8))


@pytest.mark.parametrize(
    ("size", "start", "expected"),
    [(4, 0, b"part"), (2, 3, b"ts"), (5, 3, b"ts"), (4, 9, b""), (0, 0, b"")],
    ids=["from the beginning", "from the middle", "more than there is", "behind the end", "nothing"],
)
def test_a_part_of_a_file_is_read_without_moving_its_offset(size: int, start: int, expected: bytes) -> None:
    file = os.memfd_create("parts")
    try:
        os.write(file, b"parts")
        memory = read_at(file, size, start)
        assert (memory.tobytes(), memory.flags.writeable) == (expected, False)
        assert os.lseek(file, 0, os.SEEK_CUR) == 5
    finally:
        os.close(file)
