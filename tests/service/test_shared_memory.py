"""Which descriptors are taken as memory, and that all of them are closed."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from driver.memory import BoundRequest, ValidRequest
from nnhal.errors import HalError
from nnhal.types import (
    PROT_READ,
    PROT_WRITE,
    DataLocation,
    ErrorStatus,
    Operand,
    OperandType,
    Request,
    RequestArgument,
)
from service.limits import Limits
from service.shared_memory import SharedTable, map_memory

FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
F_SEAL_FUTURE_WRITE = 16  # of linux/fcntl.h; Python's fcntl lacks it
LIMITS = Limits({"pool_bytes": 100_000, "shared": 3})


def memfd(size: int = 8192, seals: int = FIXED) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


def refused(descriptor: int) -> HalError:
    with pytest.raises(HalError) as caught:
        map_memory(descriptor, LIMITS)
    os.close(descriptor)
    return caught.value


def test_what_either_side_writes_the_other_sees() -> None:
    descriptor = memfd()
    memory = map_memory(descriptor, LIMITS)
    assert (memory.size, memory.prot) == (8192, PROT_READ | PROT_WRITE)
    os.pwrite(descriptor, b"client", 100)
    assert bytes(memory.view[100:106]) == b"client"
    memory.view[200:207] = np.frombuffer(b"service", np.uint8)
    assert os.pread(descriptor, 7, 200) == b"service"
    os.close(descriptor)
    assert memory.view[100] == ord("c")


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_WRITE])
def test_what_may_still_change_its_size(seals: int) -> None:
    error = refused(memfd(seals=seals))
    assert error.status == ErrorStatus.INVALID_ARGUMENT
    assert "F_SEAL_SHRINK" in error.reason


def test_what_can_never_change_is_read_only() -> None:
    descriptor = memfd(seals=FIXED | fcntl.F_SEAL_WRITE)
    memory = map_memory(descriptor, LIMITS)
    assert memory.prot == PROT_READ
    assert not memory.view.flags.writeable
    os.close(descriptor)


def test_what_only_the_client_can_write() -> None:
    """It may still change, so it must not pass for constant; and it cannot be mapped for writing."""
    assert "cannot be written" in refused(memfd(seals=FIXED | F_SEAL_FUTURE_WRITE)).reason
    descriptor = memfd()
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    os.close(descriptor)
    assert "cannot be written" in refused(reader).reason


def test_what_is_no_memfd(tmp_path: Path) -> None:
    pipe, other = os.pipe()
    os.close(other)
    for descriptor in (pipe, os.open(tmp_path, os.O_RDONLY), os.open("/dev/zero", os.O_RDWR)):
        assert refused(descriptor).status == ErrorStatus.INVALID_ARGUMENT
    (tmp_path / "file").write_bytes(bytes(100))
    assert refused(os.open(tmp_path / "file", os.O_RDWR)).status == ErrorStatus.INVALID_ARGUMENT


def test_sizes() -> None:
    assert "empty" in refused(memfd(0)).reason
    assert refused(memfd(100_001)).limit == "pool_bytes"
    descriptor = memfd(5)
    assert map_memory(descriptor, LIMITS).size == 5
    os.close(descriptor)


def test_huge_pages() -> None:
    try:
        descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    except OSError:
        pytest.skip("no huge pages here")
    os.ftruncate(descriptor, 0)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, FIXED)
    assert "huge" in refused(descriptor).reason


def test_numbers() -> None:
    table = SharedTable(LIMITS)
    descriptor = memfd()
    memory = map_memory(descriptor, LIMITS)
    table.add_memory(1, memory)
    with pytest.raises(HalError, match="number 1 is taken"):
        table.add_memory(1, memory)
    assert table.memory(1) is memory
    with pytest.raises(HalError, match="no memory 2"):
        table.memory(2)
    with pytest.raises(HalError, match="no file 1"):
        table.descriptor(1)
    table.drop(1)
    table.drop(1)
    with pytest.raises(HalError, match="no memory 1"):
        table.memory(1)
    os.close(descriptor)


def test_files(tmp_path: Path) -> None:
    table = SharedTable(LIMITS)
    path = tmp_path / "file"
    path.write_bytes(b"cache")
    given = os.open(path, os.O_RDONLY)
    table.add_file(3, given)
    with pytest.raises(HalError, match="taken"):
        table.add_file(3, given)
    with pytest.raises(HalError, match="no memory 3"):
        table.memory(3)
    os.close(given)
    mine = table.descriptor(3)
    assert os.read(mine, 10) == b"cache"
    table.drop(3)
    assert os.pread(mine, 10, 0) == b"cache"
    os.close(mine)
    reading, writing = os.pipe()
    with pytest.raises(HalError, match="regular"):
        table.add_file(4, reading)
    os.close(reading)
    os.close(writing)


def test_as_many_as_there_may_be_and_none_after_the_end(tmp_path: Path) -> None:
    table = SharedTable(LIMITS)
    (tmp_path / "file").touch()
    given = os.open(tmp_path / "file", os.O_RDONLY)
    for number in range(3):
        table.add_file(number, given)
    with pytest.raises(HalError) as caught:
        table.add_file(3, given)
    assert caught.value.limit == "shared"
    table.close()
    with pytest.raises(HalError, match="ended"):
        table.add_file(9, given)
    os.close(given)


def test_inputs_are_those_of_the_moment_when_they_were_taken() -> None:
    """What a client writes later changes nothing that has been checked; outputs it sees at once."""
    descriptor = memfd()
    memory = map_memory(descriptor, LIMITS)
    operand = Operand(OperandType.TENSOR_INT32, (2,))
    places = [RequestArgument(location=DataLocation(0, offset, 8)) for offset in (0, 64)]
    request = Request((places[0],), (places[1],), (memory,))
    bound = BoundRequest(ValidRequest.of(request, [operand], [operand]), [operand])
    os.pwrite(descriptor, b"\xff" * 8, 0)
    assert bound.inputs[0] is not None
    np.testing.assert_array_equal(bound.inputs[0], [0, 0])
    shared = BoundRequest(ValidRequest.of(request, [operand], [operand]), [operand], private=False).inputs[0]
    assert shared is not None and np.shares_memory(shared, memory.buffer), "a backend that copies it was given a copy"
    bound.outputs[0].write(np.array([1, 2], np.int32))
    np.testing.assert_array_equal(np.frombuffer(os.pread(descriptor, 8, 64), np.int32), [1, 2])
    os.close(descriptor)
