"""Allocators of an operator or a program: pages, arrays over them, and the example that uses one for all its memory."""

import gc
import mmap
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.errors import general_failure
from nnhal.types import Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.allocators import CustomAllocator, MemorySource, PageAllocator, allocate_with
from nnhal_driver.backends.api import Support
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.backends.registry import Registration, SearchResult
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost
from tests.driver.backends.counting_allocator import CountingAllocator
from tests.driver.one_operation import execute, prepare

MIB = 2**20
EXAMPLE = Path(__file__).parents[3] / "examples" / "backends" / "Example_Arena_backend.py"
SHAPE = (1, 40, 40, 6)
X = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)


def _chain() -> Model:
    """Return ((x + x) - x) * x."""
    b = ModelBuilder()
    x = value = b.input(T.TENSOR_FLOAT32, SHAPE)
    for type_ in (Op.ADD, Op.SUB, Op.MUL):
        value = b.add(type_, value, x, 0, output=Operand(T.TENSOR_FLOAT32, SHAPE))
    b.output(value)
    return b.build()


@pytest.mark.parametrize("source", [MemorySource.HUGE_PAGES, MemorySource.LOCKED])
@pytest.mark.parametrize("size", [1, 4096, 5000])
def test_pages_are_aligned_writable_and_separate(source: MemorySource, size: int) -> None:
    allocator = PageAllocator(source)
    allocate = allocate_with(allocator)
    first, second = allocate(size), allocate(size)
    first[:], second[:] = 1, 2
    assert first.size == size and first.ctypes.data % mmap.PAGESIZE == 0
    assert first.sum() == size
    address = allocator.allocate(size, 2**16)
    assert address % 2**16 == 0
    allocator.free(address)


def _smaps(address: int) -> dict[str, str]:
    """Return what the kernel tells about the mapping with an address."""
    found: dict[str, str] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in line.split()[0]:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            inside = start <= address < end
        elif inside:
            found[name] = value.strip()
    return found


def test_large_allocations_ask_for_huge_pages() -> None:
    block = allocate_with(PageAllocator(MemorySource.HUGE_PAGES))(3 * MIB)
    assert block.ctypes.data % (2 * MIB) == 0
    assert "hg" in _smaps(block.ctypes.data)["VmFlags"].split()
    small = allocate_with(PageAllocator(MemorySource.HUGE_PAGES))(MIB // 4)
    assert "hg" not in _smaps(small.ctypes.data)["VmFlags"].split()


def test_locked_pages_stay_in_memory() -> None:
    block = allocate_with(PageAllocator(MemorySource.LOCKED))(10_000)
    assert _smaps(block.ctypes.data)["Locked"] == "12 kB"


@pytest.fixture
def few_locked_bytes() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


def test_limit_of_locked_memory_is_a_memory_error(
    few_locked_bytes: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A privileged process has no limit, so the system call is made to fail there."""
    monkeypatch.setattr("nnhal_driver.backends.allocators._lock_pages", lambda address, length: 12)
    with pytest.raises(MemoryError, match="the allocator has no 5000 bytes"):
        allocate_with(PageAllocator(MemorySource.LOCKED))(5000)
    assert "RLIMIT_MEMLOCK" in caplog.text


def test_pages_are_unmapped_with_the_last_reference() -> None:
    block = allocate_with(PageAllocator(MemorySource.HUGE_PAGES))(3 * MIB)
    address = block.ctypes.data
    part = block[10:20]
    del block
    gc.collect()
    assert _smaps(address)
    del part
    gc.collect()
    assert "hg" not in _smaps(address).get("VmFlags", "").split()


class FixedAllocator(CountingAllocator):
    """Allocator with one answer."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer
        self.freed: list[int] = []

    def allocate(self, size: int, alignment: int) -> int:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]

    def free(self, address: int) -> None:
        self.freed.append(address)


@pytest.mark.parametrize("answer", [0, -64, None, "64", RuntimeError("test failure")])
def test_allocator_without_memory_is_a_memory_error(answer: object) -> None:
    with pytest.raises(MemoryError, match="the allocator"):
        allocate_with(FixedAllocator(answer))(100)


def test_unaligned_address_is_refused_and_freed() -> None:
    block = np.empty(1000, np.uint8)
    allocator = FixedAllocator(block.ctypes.data - block.ctypes.data % 64 + 65)
    with pytest.raises(MemoryError, match="expected a multiple of 64"):
        allocate_with(allocator)(100)
    gc.collect()
    assert allocator.freed == [allocator.answer]


class Using(CpuRef):
    """Backend that answers an offer."""

    def __init__(self, id_: str, answer: object) -> None:
        super().__init__()
        self.id = id_
        self.answer = answer
        self.offered: list[CustomAllocator] = []

    def use_allocator(self, allocator: CustomAllocator) -> Support:
        self.offered.append(allocator)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[return-value]


def test_device_offers_its_allocator_once_and_tells_who_refuses() -> None:
    allocator = CountingAllocator()
    backends = [
        Using("Yes", Support()),
        Using("No", Support("only DMA_BUF")),
        Using("Fails", general_failure("test failure")),
        Using("Exits", SystemExit("test")),
        Using("Wrong", True),
        *registry.create(["CpuRef"]),
    ]
    device = Device("test", backends, host=DeviceHost(allocator=allocator))
    device.close()
    refusals = device.allocator_refusals
    assert refusals["Yes"] == ""
    assert refusals["No"] == "only DMA_BUF"
    assert "test failure" in refusals["Fails"] and "SystemExit" in refusals["Exits"]
    assert "expected a Support" in refusals["Wrong"]
    assert refusals["CpuRef"] == "it uses memory of its own"
    assert all(backend.offered == [allocator] for backend in backends if isinstance(backend, Using))


def test_no_allocator_is_offered_by_default() -> None:
    backend = Using("Yes", Support())
    device = Device("test", [backend])
    device.close()
    assert device.allocator_refusals == {} and backend.offered == []


def test_example_takes_all_memory_of_tensors_from_the_allocator() -> None:
    allocator = CountingAllocator()
    device = Device("test", [load(file_candidate(EXAMPLE)).backend], host=DeviceHost(allocator=allocator))
    assert device.allocator_refusals == {"ExampleArena": ""}
    outcome = prepare(_chain(), device)
    (expected,) = execute(prepare(_chain()), [X])[1]
    (actual,) = execute(outcome, [X])[1]
    np.testing.assert_array_equal(actual, expected)
    piece = 40 * 40 * 8 * 4
    assert allocator.sizes == [2 * piece, piece], "the block of two pieces, and the output"
    device.close()
    del outcome, actual
    gc.collect()
    assert allocator.live == {}


def test_protected_content_is_not_promised(caplog: pytest.LogCaptureFixture) -> None:
    class Protecting(CpuRef):
        def capabilities(self) -> dict[str, bool]:
            return {"ProtectedContentAllocation": True, "Other": True}

    assembly = registry.assemble(["P"], SearchResult((Registration("P", lambda *_: Protecting()),)))
    assembly.close()
    assert assembly.reports[0].capabilities == {"Other": True}
    assert "ProtectedContentAllocation is left out" in caplog.text
