"""Shared memories and files: numbers, limits, and that all descriptors are closed."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhal.errors import HalError
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.shared_table import SharedTable
from nnhal_service.shm.memory_mapping import map_memory

FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
F_SEAL_FUTURE_WRITE = 16  # of linux/fcntl.h; Python's fcntl lacks it
LIMITS = Limits({"pool_bytes": 100_000, "shared": 3})


def memfd(size: int = 8192, seals: int = FIXED) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def no_open_descriptors() -> Iterator[None]:
    before = count_descriptors()
    yield
    assert count_descriptors() == before


def test_numbers() -> None:
    table = SharedTable(LIMITS)
    descriptor = memfd()
    memory = map_memory(descriptor, LIMITS)
    table.add_memory(1, memory)
    with pytest.raises(HalError, match="number 1 is already in use"):
        table.add_memory(1, memory)
    assert table.memory(1) is memory
    with pytest.raises(HalError, match="no memory with number 2"):
        table.memory(2)
    with pytest.raises(HalError, match="no file with number 1"):
        table.descriptor(1)
    table.drop(1)
    table.drop(1)
    with pytest.raises(HalError, match="no memory with number 1"):
        table.memory(1)
    os.close(descriptor)


def test_files(tmp_path: Path) -> None:
    table = SharedTable(LIMITS)
    path = tmp_path / "file"
    path.write_bytes(b"cache")
    descriptor = os.open(path, os.O_RDONLY)
    table.add_file(3, descriptor)
    with pytest.raises(HalError, match="already in use"):
        table.add_file(3, descriptor)
    with pytest.raises(HalError, match="no memory with number 3"):
        table.memory(3)
    os.close(descriptor)
    mine = table.descriptor(3)
    assert os.read(mine, 10) == b"cache"
    table.drop(3)
    assert os.pread(mine, 10, 0) == b"cache"
    os.close(mine)
    reading, writing = os.pipe()
    with pytest.raises(HalError, match="not a regular file"):
        table.add_file(4, reading)
    os.close(reading)
    os.close(writing)


def test_limit_and_close(tmp_path: Path) -> None:
    table = SharedTable(LIMITS)
    (tmp_path / "file").touch()
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    for number in range(3):
        table.add_file(number, descriptor)
    with pytest.raises(HalError) as caught:
        table.add_file(3, descriptor)
    assert caught.value.limit == "shared"
    table.close()
    with pytest.raises(HalError, match="ended"):
        table.add_file(9, descriptor)
    os.close(descriptor)
