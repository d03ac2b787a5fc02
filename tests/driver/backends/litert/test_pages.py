"""Memory that shares a file's pages keeps its bytes, and the file stays as it is."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from driver.backends.litert.pages import LEAST, PAGE, address, is_shareable, share
from nnhal.types import AnyArray, Bytes

MEGABYTE = 2**20


def mapped(array: AnyArray) -> bool:
    """Whether the middle of an array lies in a mapping of a memory file."""
    middle = address(array) + array.nbytes // 2
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= middle < end:
                return "memfd:" in line
    return False


@pytest.fixture
def buffer() -> Bytes:
    made: Bytes = np.random.default_rng(1).integers(0, 256, 40 * MEGABYTE, np.uint8)
    return made


@pytest.fixture
def descriptor() -> Iterator[int]:
    made = os.memfd_create("test")
    yield made
    os.close(made)


def test_the_bytes_stay_and_the_pages_are_those_of_the_file(buffer: Bytes, descriptor: int) -> None:
    before = buffer.copy()
    window = buffer[160 : 160 + 8 * MEGABYTE]
    window.flags.writeable = False
    assert is_shareable(window) and not mapped(window)
    offset = PAGE + address(window) % PAGE
    os.pwrite(descriptor, window.tobytes(), offset)
    share(window, descriptor, offset)
    assert mapped(window) and not mapped(buffer[9 * MEGABYTE :])
    np.testing.assert_array_equal(buffer, before)
    buffer[: 9 * MEGABYTE] = 7
    assert os.pread(descriptor, window.nbytes, offset) == before[160 : 160 + window.nbytes].tobytes()


def test_what_lies_otherwise_in_its_page_stays(buffer: Bytes, descriptor: int) -> None:
    window = buffer[: 8 * MEGABYTE]
    window.flags.writeable = False
    os.ftruncate(descriptor, 10 * MEGABYTE)
    before = window.copy()
    share(window, descriptor, (address(window) + 64) % PAGE)
    assert not mapped(window)
    np.testing.assert_array_equal(window, before)


def test_only_large_memory_that_nobody_writes_to_is_shared(buffer: Bytes) -> None:
    assert not is_shareable(buffer), "somebody may write to it"
    buffer.flags.writeable = False
    assert is_shareable(buffer[:LEAST])
    assert not is_shareable(buffer[: LEAST - 1]), "too small"
    assert not is_shareable(buffer[1:]), "the engine needs aligned constants"
    assert not is_shareable(buffer[::2])
    heap = np.zeros(MEGABYTE, np.uint8)
    heap.flags.writeable = False
    assert not is_shareable(heap), "malloc would use its pages again"
