"""Memory that shares a file's pages keeps its bytes, and the file stays unchanged."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from nnhal.types import Bytes
from nnhal_driver.backends.litert.page_sharing import MIN_BYTES, PAGE, is_shareable, share
from nnhal_driver.mapped_memory import allocate
from nnhal_driver.overlaps import address
from tests.driver.backends.litert.support.page_maps import in_memory_file

MEGABYTE = 2**20


@pytest.fixture
def buffer() -> Bytes:
    memory = allocate(40 * MEGABYTE)
    memory[:] = np.random.default_rng(1).integers(0, 256, memory.size, np.uint8)
    return memory


@pytest.fixture
def descriptor() -> Iterator[int]:
    file = os.memfd_create("test")
    yield file
    os.close(file)


def test_sharing_keeps_the_bytes_and_uses_the_pages_of_the_file(buffer: Bytes, descriptor: int) -> None:
    before = buffer.copy()
    window = buffer[160 : 160 + 8 * MEGABYTE]
    window.flags.writeable = False
    assert is_shareable(window) and not in_memory_file(window)
    offset = PAGE + address(window) % PAGE
    os.pwrite(descriptor, window.tobytes(), offset)
    share(window, descriptor, offset)
    assert in_memory_file(window) and not in_memory_file(buffer[9 * MEGABYTE :])
    np.testing.assert_array_equal(buffer, before)
    buffer[: 9 * MEGABYTE] = 7
    assert os.pread(descriptor, window.nbytes, offset) == before[160 : 160 + window.nbytes].tobytes()


def test_different_offset_within_the_page_is_rejected(buffer: Bytes, descriptor: int) -> None:
    window = buffer[: 8 * MEGABYTE]
    window.flags.writeable = False
    os.ftruncate(descriptor, 10 * MEGABYTE)
    before = window.copy()
    with pytest.raises(AssertionError, match="within a page"):
        share(window, descriptor, (address(window) + 64) % PAGE)
    assert not in_memory_file(window)
    np.testing.assert_array_equal(window, before)


def test_only_large_read_only_memory_with_its_own_mapping_is_shareable(buffer: Bytes) -> None:
    assert not is_shareable(buffer), "writable"
    buffer.flags.writeable = False
    assert is_shareable(buffer[:MIN_BYTES])
    assert is_shareable(buffer[: 4 * MIN_BYTES].view(np.float32).reshape(4, -1))
    assert not is_shareable(buffer[: MIN_BYTES - 1]), "too small"
    assert not is_shareable(buffer[1:]), "the engine needs aligned constants"
    assert not is_shareable(buffer[::2])
    for size in (MEGABYTE, 40 * MEGABYTE):
        heap = np.zeros(size, np.uint8)
        heap.flags.writeable = False
        assert not is_shareable(heap), "allocated by malloc"


def test_freeing_the_memory_frees_shared_pages(descriptor: int) -> None:
    memory = allocate(40 * MEGABYTE)
    memory.flags.writeable = False
    os.ftruncate(descriptor, memory.size)
    share(memory, descriptor, 0)
    name = "memfd:test"
    with open("/proc/self/maps") as maps:
        assert name in maps.read()
    del memory
    with open("/proc/self/maps") as maps:
        assert name not in maps.read()
