"""Life of a native backend: networks, parts, the end of the object, and of the library."""

import gc
from pathlib import Path

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, SpanKind
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.allocators import MemorySource
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load
from nnhal_driver.backends.registry import Registration, SearchResult
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost
from tests.driver.backends.counting_allocator import CountingAllocator
from tests.driver.backends.native.building import frozen, lifecycle
from tests.driver.one_operation import execute, execute_profiled, float_tensor, model_of, prepare, tensor

X = np.ones((300, 400), np.float32)
OTHER = model_of(Op.ABS, [float_tensor(X)], [tensor(T.TENSOR_FLOAT32, X.shape)], constants=False)
MODEL = model_of(Op.NEG, [float_tensor(X)], [tensor(T.TENSOR_FLOAT32, X.shape)], constants=False)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lifecycle(tmp_path_factory.mktemp("lifecycle"))


class Log:
    """File to which the plug-in writes its calls."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self) -> list[tuple[str, int]]:
        """Return the calls since the last time, each with its number of a network."""
        lines = [line.split() for line in self.path.read_text().splitlines()]
        self.path.write_text("")
        return [(event, int(number)) for event, number in lines]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    gc.collect()  # objects of other tests must not end during this one
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("NNHAL_TEST_LOG", str(path))
    return Log(path)


def backends(plugin: Path) -> list[Backend]:
    return [load(file_candidate(plugin)).backend, *registry.create(["CpuRef"])]


def is_mapped(plugin: Path) -> bool:
    return str(plugin) in Path("/proc/self/maps").read_text()


def test_networks_enclose_their_parts(plugin: Path, log: Log) -> None:
    device = Device("test", backends(plugin))
    outcome = prepare(MODEL, device)
    execute(outcome, [X])
    calls = log.take()
    number = calls[1][1]
    assert [event for event, _ in calls] == [
        *("create", "before_load_network", "compile", "after_load_network", "execute"),
    ]
    assert {network for _, network in calls[1:]} == {number} != {0}
    other = prepare(OTHER, device)
    assert log.take() == [("before_load_network", number + 1), ("after_load_network", number + 1)]
    del outcome
    gc.collect()
    unloaded = [(event, number) for event in ("before_unload_network", "release", "after_unload_network")]
    assert log.take() == unloaded
    del other
    device.close()


def test_closing_the_device_destroys_the_object_and_unloads_the_library(plugin: Path, log: Log) -> None:
    used = backends(plugin)
    device = Device("test", used)
    prepare(MODEL, device)
    gc.collect()
    log.take()
    assert is_mapped(plugin)
    device.close()
    assert log.take() == [("destroy", 0)], "although the program still has the backend"
    gc.collect()
    assert not is_mapped(plugin)
    with pytest.raises(HalError, match="backend Lifecycle is closed") as error:
        used[0].capabilities()
    assert error.value.status == ErrorStatus.DEVICE_UNAVAILABLE


def test_model_outlives_its_device(plugin: Path, log: Log) -> None:
    device = Device("test", backends(plugin))
    outcome = prepare(MODEL, device)
    device.close()
    log.take()
    assert execute(outcome, [X])[1][0].max() == -1
    del outcome
    gc.collect()
    assert [event for event, _ in log.take()] == [
        *("execute", "before_unload_network", "release", "after_unload_network", "destroy"),
    ]


def test_two_devices_share_a_backend(plugin: Path, log: Log) -> None:
    shared = backends(plugin)
    first, second = Device("first", shared), Device("second", shared)
    first.close()
    assert log.take() == [("create", 0)]
    second.close()
    assert log.take() == [("destroy", 0)]


def test_assembly_without_a_device_destroys_the_object(plugin: Path, log: Log) -> None:
    found = SearchResult((Registration("Lifecycle", lambda *_: load(file_candidate(plugin)).backend),))
    assembly = registry.assemble(["Lifecycle", "CpuRef"], found)
    device = Device("test", assembly.backends)
    assembly.close()
    assert log.take() == [("create", 0)], "the device uses it"
    device.close()
    assert log.take() == [("destroy", 0)]
    registry.assemble(["Lifecycle", "CpuRef"], found).close()
    assert log.take() == [("create", 0), ("destroy", 0)]


def test_backend_whose_capabilities_fail_is_closed(plugin: Path, log: Log) -> None:
    def create(*_: object) -> Backend:
        backend = load(file_candidate(plugin)).backend
        backend.capabilities = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        return backend

    assembly = registry.assemble(["Lifecycle", "CpuRef"], SearchResult((Registration("Lifecycle", create),)))
    assert [backend.id for backend in assembly.backends] == ["CpuRef"]
    assert log.take() == [("create", 0), ("destroy", 0)]


def test_plugin_and_host_use_the_allocator_for_it(plugin: Path, log: Log) -> None:
    allocator = CountingAllocator()
    device = Device("test", backends(plugin), host=DeviceHost(allocator=allocator))
    assert device.allocator_refusals["Lifecycle"] == ""
    outcome = prepare(MODEL, device)
    assert dict(log.take())["unaligned"] == 0
    assert allocator.sizes == [1000]
    assert execute(outcome, [X])[1][0].max() == -1
    assert sorted(allocator.sizes) == [128, 1000, X.nbytes], "the block of a piece, its own memory, and the output"
    device.close()
    del outcome
    gc.collect()
    assert allocator.live == {}
    assert log.take()[-1] == ("destroy", 0)


def test_plugin_refuses_an_allocator_with_its_reason(plugin: Path, log: Log) -> None:
    allocator = CountingAllocator()
    allocator.source = MemorySource.LOCKED
    device = Device("test", backends(plugin), host=DeviceHost(allocator=allocator))
    assert device.allocator_refusals["Lifecycle"] == "it needs memory that can be swapped out"
    assert execute(prepare(MODEL, device), [X])[1][0].max() == -1
    assert allocator.sizes == []
    device.close()


def test_plugin_without_the_function_gets_no_allocator(tmp_path: Path) -> None:
    device = Device(
        "test", [load(file_candidate(frozen(tmp_path))).backend], host=DeviceHost(allocator=CountingAllocator())
    )
    assert device.allocator_refusals == {"Frozen": "it has no use_allocator"}
    device.close()


def test_allocator_that_fails_is_out_of_memory(plugin: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = CountingAllocator()
    device = Device("test", backends(plugin), host=DeviceHost(allocator=allocator))
    outcome = prepare(MODEL, device)
    monkeypatch.setattr(allocator, "allocate", lambda size, alignment: 0)
    with pytest.raises(HalError) as error:
        execute(outcome, [X])
    assert error.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    device.close()


def test_plugin_hears_of_profiled_executions(plugin: Path, log: Log) -> None:
    device = Device("test", backends(plugin))
    outcome = prepare(MODEL, device)
    log.take()
    execute(outcome, [X])
    assert [event for event, _ in log.take()] == ["execute"]
    spans = execute_profiled(outcome, [X]).spans
    calls = log.take()
    assert [event for event, _ in calls] == ["profiling_begin", "execute", "profiled", "profiling_end"]
    assert len({number for event, number in calls if event != "execute"}) == 1
    counters = next(span for span in spans if span.name == "counters")
    assert (counters.kind, counters.backend, counters.duration_ns) == (SpanKind.WORK, "Lifecycle", 11)
    device.close()
    del outcome
    gc.collect()
    assert log.take()[-1] == ("destroy", 0)
