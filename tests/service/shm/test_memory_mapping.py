"""Mapping of shared memory: accepted descriptors, and that all of them are closed."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

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
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest
from nnhal_service.sessions.limits import Limits
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


def rejected(descriptor: int) -> HalError:
    with pytest.raises(HalError) as caught:
        map_memory(descriptor, LIMITS)
    os.close(descriptor)
    return caught.value


def test_writes_are_visible_to_both_sides() -> None:
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
def test_memory_whose_size_may_change(seals: int) -> None:
    error = rejected(memfd(seals=seals))
    assert error.status == ErrorStatus.INVALID_ARGUMENT
    assert "F_SEAL_SHRINK" in error.reason


def test_constant_memory_is_read_only() -> None:
    descriptor = memfd(seals=FIXED | fcntl.F_SEAL_WRITE)
    memory = map_memory(descriptor, LIMITS)
    assert memory.prot == PROT_READ
    assert not memory.view.flags.writeable
    os.close(descriptor)


def test_memory_that_only_the_client_can_write() -> None:
    """Its values may still change, so it is not constant, and it cannot be mapped for writing."""
    assert "not writable" in rejected(memfd(seals=FIXED | F_SEAL_FUTURE_WRITE)).reason
    descriptor = memfd()
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    os.close(descriptor)
    assert "not writable" in rejected(reader).reason


def test_other_descriptors(tmp_path: Path) -> None:
    pipe, other = os.pipe()
    os.close(other)
    for descriptor in (pipe, os.open(tmp_path, os.O_RDONLY), os.open("/dev/zero", os.O_RDWR)):
        assert rejected(descriptor).status == ErrorStatus.INVALID_ARGUMENT
    (tmp_path / "file").write_bytes(bytes(100))
    assert rejected(os.open(tmp_path / "file", os.O_RDWR)).status == ErrorStatus.INVALID_ARGUMENT


def test_sizes() -> None:
    assert "empty" in rejected(memfd(0)).reason
    assert rejected(memfd(100_001)).limit == "pool_bytes"
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
    assert "huge" in rejected(descriptor).reason


def test_inputs_are_copied_and_outputs_are_shared() -> None:
    """A later write of the client does not change checked inputs. The client sees outputs at once."""
    descriptor = memfd()
    memory = map_memory(descriptor, LIMITS)
    operand = Operand(OperandType.TENSOR_INT32, (2,))
    places = [RequestArgument(location=DataLocation(0, offset, 8)) for offset in (0, 64)]
    request = Request((places[0],), (places[1],), (memory,))
    bound = BoundRequest(ValidRequest.bind(request, [operand], [operand]), [operand])
    os.pwrite(descriptor, b"\xff" * 8, 0)
    assert bound.inputs[0] is not None
    np.testing.assert_array_equal(bound.inputs[0], [0, 0])
    shared = BoundRequest(ValidRequest.bind(request, [operand], [operand]), [operand], private=False).inputs[0]
    assert shared is not None and np.shares_memory(shared, memory.buffer), (
        "a backend that copies its inputs needs no private copy"
    )
    bound.outputs[0].write(np.array([1, 2], np.int32))
    np.testing.assert_array_equal(np.frombuffer(os.pread(descriptor, 8, 64), np.int32), [1, 2])
    os.close(descriptor)
