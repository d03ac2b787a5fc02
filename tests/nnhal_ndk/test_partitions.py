"""Models divided among real services, and the CPU in their place, through the library."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from nnhal import wire
from nnhal.types import AnyArray, CacheState
from nnhal.types import OperationType as Op
from nnhal_ndk import devices
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.device_list import REFERENCE, DeviceSource
from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.partitioned_plan import PartitionedPlan
from nnhal_ndk.execution.plan import SingleDevicePlan
from nnhal_ndk.objects import OBJECTS
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, handles
from nnhal_tools.conformance.ndk.model import LibraryModel
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.nnhal.client.fallback.in_process import run_whole
from tests.nnhal.client.fallback.models import X, chain
from tests.nnhal_ndk.programs import expect

pytestmark = pytest.mark.nightly

PLUGINS = Path(__file__).parents[1] / "end_to_end" / "clients" / "plugins"
MODEL = chain(Op.ABS, Op.NEG, Op.FLOOR, Op.EXP)
EXPECTED = run_whole(MODEL, [X])[0]


def start_without(folder: Path, *refused: str) -> Service:
    """Start a service that lacks some operations."""
    settings = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(PLUGINS), "PICKY_REFUSED": " ".join(refused)}
    return start_service(folder, "--backends", "Picky", **settings)


@pytest.fixture
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """Yield three services. Each operation of MODEL is supported by one of them, and FLOOR only by the last."""
    lacking = (("NEG", "FLOOR"), ("ABS", "EXP", "FLOOR"), ("ABS", "NEG", "EXP"))
    running = [start_without(tmp_path_factory.mktemp("picky"), *refused) for refused in lacking]
    yield running
    for service in running:
        stop_service(service)


@pytest.fixture
def listed(library: NdkLibrary, services: list[Service], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[NdkDevice]]:
    """Yield the devices. The library has the first two, and the last, which is the reference implementation."""
    sources = [DeviceSource(service.target) for service in services]
    found = [NdkDevice(source) for source in (*sources, REFERENCE)]
    monkeypatch.setattr(devices, "_devices", [*found[:2], found[3]])
    yield found
    for device in found:
        device.close()
        OBJECTS.remove(device.handle, NdkDevice)


class Chain:
    """MODEL as a program builds it."""

    def __init__(self, library: NdkLibrary, stack: ExitStack) -> None:
        self._library = library
        self._stack = stack
        self._handle = stack.enter_context(LibraryModel(library, wire.model_message(MODEL))).handle

    def compilation(self, chosen: list[NdkDevice] | None, cache: Path | None = None) -> int:
        """Return a finished compilation for a list of devices, or for all."""
        if chosen is None:
            compilation = self._library.create("Compilation_create", self._handle)
        else:
            pointers = handles(*(device.handle for device in chosen))
            compilation = self._library.create("Compilation_createForDevices", self._handle, pointers, len(chosen))
        self._stack.callback(self._library.Compilation_free, compilation)
        if cache is not None:
            expect(self._library.Compilation_setCaching(compilation, bytes(cache), bytes(range(32))))
        expect(self._library.Compilation_finish(compilation))
        return compilation

    def execution(self, compilation: int, result: AnyArray) -> int:
        """Return a reusable execution."""
        execution = self._library.create("Execution_create", compilation)
        self._stack.callback(self._library.Execution_free, execution)
        expect(self._library.Execution_setReusable(execution, True))
        expect(self._library.Execution_setInput(execution, 0, None, X.ctypes.data, X.nbytes))
        expect(self._library.Execution_setOutput(execution, 0, None, result.ctypes.data, result.nbytes))
        return execution


@pytest.fixture
def program(library: NdkLibrary, listed: list[NdkDevice]) -> Iterator[Chain]:
    with ExitStack() as stack:
        yield Chain(library, stack)


def check_all_ways(library: NdkLibrary, program: Chain, compilation: int) -> None:
    """Check the results of all ways of computing with one execution."""
    result = np.zeros_like(X)
    execution, burst = program.execution(compilation, result), library.create("Burst_create", compilation)

    def start() -> int:
        first = library.create("Execution_startCompute", execution)
        expect(library.Event_wait(first))
        event = library.create("Execution_startComputeWithDependencies", execution, handles(first), 1, 0)
        code = library.Event_wait(event)
        library.Event_free(event)
        library.Event_free(first)
        return code

    ways: list[Callable[[], int]] = [
        lambda: library.Execution_compute(execution),
        lambda: library.Execution_burstCompute(execution, burst),
        start,
    ]
    for compute in ways:
        result.fill(0)
        expect(compute())
        np.testing.assert_allclose(result, EXPECTED, rtol=1e-6)
    library.Burst_free(burst)


def parts(compilation: int) -> Sequence[SingleDevicePlan]:
    """Return the parts of a compilation."""
    plan = OBJECTS.get(compilation, NdkCompilation).plan
    inner = getattr(plan, "_plan", plan)
    assert isinstance(inner, PartitionedPlan)
    return inner.parts


def test_a_list_of_devices_shares_a_model(library: NdkLibrary, listed: list[NdkDevice], program: Chain) -> None:
    compilation = program.compilation(listed[:3])
    assert len(parts(compilation)) == 4
    check_all_ways(library, program, compilation)


def test_the_cpu_runs_what_no_device_supports(library: NdkLibrary, program: Chain) -> None:
    compilation = program.compilation(None)
    assert [part.device.is_reference for part in parts(compilation)] == [False, False, True, False]
    check_all_ways(library, program, compilation)


def test_a_list_that_lacks_an_operation_is_refused(
    library: NdkLibrary, listed: list[NdkDevice], program: Chain
) -> None:
    pointers = handles(listed[0].handle, listed[1].handle)
    compilation = library.create("Compilation_createForDevices", program._handle, pointers, 2)
    expect(library.Compilation_finish(compilation), ResultCode.BAD_DATA)
    library.Compilation_free(compilation)


def test_parts_are_cached_by_their_own_tokens(
    library: NdkLibrary, listed: list[NdkDevice], program: Chain, tmp_path: Path
) -> None:
    for expected in (CacheState.SAVED, CacheState.HIT):
        compilation = program.compilation(listed[:3], tmp_path)
        assert {part.prepared.cache.state for part in parts(compilation)} == {expected}
        check_all_ways(library, program, compilation)


def test_a_memory_of_a_divided_model_stays_in_the_process(library: NdkLibrary, program: Chain) -> None:
    compilation = program.compilation(None)
    desc = library.create("MemoryDesc_create")
    expect(library.MemoryDesc_addOutputRole(desc, compilation, 0, 1.0))
    expect(library.MemoryDesc_finish(desc))
    memory = library.create("Memory_createFromDesc", desc)
    execution = library.create("Execution_create", compilation)
    expect(library.Execution_setInput(execution, 0, None, X.ctypes.data, X.nbytes))
    expect(library.Execution_setOutputFromMemory(execution, 0, None, memory, 0, 0))
    expect(library.Execution_compute(execution))
    descriptor = os.memfd_create("copy")
    os.ftruncate(descriptor, X.nbytes)
    copy = library.create("Memory_createFromFd", X.nbytes, 3, descriptor, 0)
    expect(library.Memory_copy(memory, copy))
    np.testing.assert_array_equal(np.frombuffer(os.pread(descriptor, X.nbytes, 0), np.float32), EXPECTED.ravel())
    os.close(descriptor)
    library.Execution_free(execution)
    for each in (memory, copy):
        library.Memory_free(each)
    library.MemoryDesc_free(desc)


def test_the_cpu_takes_over_when_a_service_dies(
    library: NdkLibrary, services: list[Service], listed: list[NdkDevice], program: Chain
) -> None:
    compilation = program.compilation(None)
    execution = program.execution(compilation, result := np.zeros_like(X))
    expect(library.Execution_compute(execution))
    listed[0].hal._session._timeout = 0.1
    services[0].process.send_signal(signal.SIGKILL)
    services[0].process.wait()
    result.fill(0)
    expect(library.Execution_compute(execution))
    np.testing.assert_allclose(result, EXPECTED, rtol=1e-6)
    check_all_ways(library, program, program.compilation(None))
