"""Additions of header 1.1 in a C plug-in: memory, layouts, operand types, optimize, spans, shared inputs."""

import gc
import mmap
import os
import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.client.core.arrays import ModelIO
from nnhal.errors import HalError
from nnhal.types import (
    AnyArray,
    Bytes,
    CacheState,
    DataLocation,
    ExecutionPreference,
    Extension,
    ExtensionOperandTypeInformation,
    Memory,
    Model,
    Operand,
    PrepareModelConfig,
    Request,
    RequestArgument,
    ReturnedPool,
    SpanKind,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend, CompileOptions, SubgraphView
from nnhal_driver.backends.layout import Layout, convert
from nnhal_driver.backends.memory import allocate_aligned
from nnhal_driver.backends.native.compiled import NativeSubgraph
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import LoadError, load
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from nnhal_driver.graph import build_graphs, subgraph_view
from nnhal_driver.preparation.launch import GivenModel
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.backends.native.building import newer
from tests.driver.fake_backend import LARGE, device_of, parts
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import KEY, Pair
from tests.driver.one_operation import execute, execute_profiled, prepare

NAME = "com.example.newer"
SHORT, SECRET, SHORTEN, LENGTHEN = 5, 6, 1, 2


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return newer(tmp_path_factory.mktemp("newer"))


@pytest.fixture
def backend(plugin: Path) -> Backend:
    return load(file_candidate(plugin)).backend


@pytest.fixture
def device(backend: Backend) -> Iterator[Device]:
    with device_of(backend, *registry.create(["CpuRef"])) as device:
        yield device


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return a function that reads and clears the events of the plug-in."""
    path = tmp_path / "events"
    path.touch()
    monkeypatch.setenv("NEWER_EVENTS", str(path))

    def read_events() -> list[str]:
        lines = path.read_text().splitlines()
        path.write_text("")
        return lines

    return read_events


def chain(count: int, shape: tuple[int, ...] = (8,), declared: tuple[int, ...] | None = None) -> Model:
    """Return a chain of `count` NEG operations."""
    b = ModelBuilder()
    value = b.input(T.TENSOR_FLOAT32, shape if declared is None else declared)
    for _ in range(count):
        value = b.add(Op.NEG, value, output=Operand(T.TENSOR_FLOAT32, shape if declared is None else declared))
    b.output(value)
    return b.build()


def relu(shape: tuple[int, ...] = (1, 2, 3, 6)) -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, shape)
    b.output(b.add(Op.RELU, x, output=Operand(T.TENSOR_FLOAT32, shape)))
    return b.build()


def view_of(model: Model) -> SubgraphView:
    (graph,) = build_graphs(model)
    return subgraph_view(graph, range(len(graph.operations)), False)


def floats(*shape: int) -> AnyArray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# ---- Planned memory ---------------------------------------------------------------------------------------


def test_pieces_keep_values_during_an_execution(device: Device, events: Callable[[], list[str]]) -> None:
    """The plug-in records an event if the host violates the header. There is none."""
    outcome = prepare(chain(1), device)
    assert [line for line in events() if "load" not in line] == ["compile 1", "mode 0"]
    for values in (floats(8), floats(8)[::-1]):
        np.testing.assert_array_equal(execute(outcome, [values])[1][0], -values)
    assert {line.split()[0] for line in events()} <= {"in", "out", "lies"}


def test_host_plans_shared_and_separate_pieces(backend: Backend, events: Callable[[], list[str]]) -> None:
    """The block has 4096 bytes for shared pieces and 4096 for a separate one. Static pieces are not in it."""
    compiled = backend.compile(view_of(chain(1)), CompileOptions(0))
    assert isinstance(compiled, NativeSubgraph)
    assert (compiled.planned_memory.manager.peak_bytes, compiled.planned_memory.manager.sum_bytes) == (8192, 8192)


@pytest.mark.parametrize(
    ("preference", "mode", "blocks"),
    [(ExecutionPreference.LOW_POWER, 1, 2), (ExecutionPreference.SUSTAINED_SPEED, 0, 1)],
)
def test_block_is_freed_in_mode_limit(
    backend: Backend, events: Callable[[], list[str]], preference: ExecutionPreference, mode: int, blocks: int
) -> None:
    sizes: list[int] = []

    def allocate(size: int) -> Bytes:
        sizes.append(size)
        return allocate_aligned(size)

    with device_of(backend) as device:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        launch_preparation(device, chain(1), outcomes.put, PrepareModelConfig(preference=preference))
        outcome = outcomes.get(timeout=30)
        assert f"mode {mode}" in events()
        prepared = outcome.prepared_model
        assert prepared is not None
        compiled = prepared.plan.nodes[0].compiled.compiled  # type: ignore[attr-defined]
        compiled.planned_memory.manager._allocate = allocate
        for _ in range(2):
            assert execute(outcome, [np.ones(8, np.float32)])[1][0].tolist() == [-1] * 8
            assert compiled.planned_memory.manager.is_held == (blocks == 1)
        assert sizes == [8192] * blocks


def test_new_shapes_are_planned_again(
    backend: Backend, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWER", "resize")
    with device_of(backend) as device:
        outcome = prepare(chain(1, declared=(0,)), device)
        prepared = outcome.prepared_model
        assert prepared is not None
        manager = prepared.plan.nodes[0].compiled.compiled.planned_memory.manager  # type: ignore[attr-defined]
        for count in (16, 2000, 16, 16):
            values = floats(count)
            np.testing.assert_array_equal(execute(outcome, [values])[1][0], -values)
            assert manager.peak_bytes == 2 * (-(-4 * count // 64) * 64)
    assert {line.split()[0] for line in events()} <= {
        "compile",
        "mode",
        "in",
        "out",
        "lies",
        "before_load",
        "after_load",
    }


def test_executions_with_pieces_are_serialized(
    plugin: Path, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds despite the capability ConcurrentExecution. RELU has no pieces and needs no lock."""
    monkeypatch.setenv("NEWER", "capable")
    backend = load(file_candidate(plugin)).backend
    compiled = [backend.compile(view_of(model), CompileOptions(0)) for model in (chain(1), relu())]
    assert [subgraph._lock is not None for subgraph in compiled] == [True, False]  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", ["greedy static", "greedy dynamic"])
def test_excessive_memory_request_fails_to_compile(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("NEWER", words)
    outcome = prepare(chain(1), device)
    assert parts(outcome.placement) == [("CpuRef", (0,))]
    assert "there is no room" in outcome.placement.operations[0].refusals[0].reason


# ---- Layouts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "seen"), [("layout0", "1 2 3 6"), ("layout1", "1 6 2 3"), ("layout2", "1 2 2 3 4")])
def test_host_converts_to_the_layout_of_the_plugin(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, layout: str, seen: str
) -> None:
    monkeypatch.setenv("NEWER", layout)
    outcome = prepare(relu(), device)
    assert parts(outcome.placement) == [("Newer", (0,))]
    x = floats(1, 2, 3, 6)
    np.testing.assert_array_equal(execute(outcome, [x])[1][0], x.clip(0))
    assert [line for line in events() if line[:2] in ("in", "ou")] == [f"in 2.32.1 {seen}", f"out 2.32.1 {seen}"]


def test_partitions_with_the_same_layout_need_no_conversion(
    device: Device, monkeypatch: pytest.MonkeyPatch, events: Callable[[], list[str]]
) -> None:
    b = ModelBuilder()
    value = b.input(T.TENSOR_FLOAT32, (1, 2, 3, 6))
    for _ in range(3):
        value = b.add(Op.RELU, value, output=Operand(T.TENSOR_FLOAT32, (1, 2, 3, 6)))
    b.output(value)
    converted: list[str] = []

    def record_and_convert(array: AnyArray, source: Layout, target: Layout, channels: int = 0) -> AnyArray:
        converted.append(target.name)
        return convert(array, source, target, channels)

    monkeypatch.setenv("NEWER", "layout2")
    outcome = prepare(b.build(), device)
    monkeypatch.setattr("nnhal_driver.backends.layout.convert", record_and_convert)
    values = floats(1, 2, 3, 6)
    np.testing.assert_array_equal(execute(outcome, [values])[1][0], values.clip(0))
    assert converted == ["NC4HW4", "NHWC"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("layout7", "declares layouts 0 and 7 for operand 0; they are invalid"),
        ("layout1 no_operand", "declares a layout for operand 99; expected an input or output"),
        ("layout1 repeated", "expected an input or output, and each at most once"),
        ("layout1 from_packed", "declares layouts 2 and 1 for operand 1; they are invalid"),
    ],
)
def test_invalid_layouts_fail_to_compile(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, words: str, reason: str
) -> None:
    monkeypatch.setenv("NEWER", words)
    outcome = prepare(relu(), device)
    assert parts(outcome.placement) == [("CpuRef", (0,))]
    assert reason in outcome.placement.operations[0].refusals[0].reason
    gc.collect()
    assert "release 1" in events(), "the compiled subgraph is not released"


def test_layout_of_a_vector_fails_to_compile(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWER", "layout1")
    outcome = prepare(chain(1), device)
    assert "operand 0 of shape [8]; expected rank 4" in outcome.placement.operations[0].refusals[0].reason


# ---- Operand types of extensions -----------------------------------------------------------------------------


def shortened(key: bytes = b"abc", short: int = SHORT) -> Model:
    """Return a model that converts floats to elements of three bytes and back. Each float loses its last byte."""
    b = ModelBuilder()
    extension = b.extension(NAME)
    secret = b.constant(key, extension.operand_type(SECRET))
    x = b.input(T.TENSOR_FLOAT32, (5,))
    encrypted = b.add(extension.operation_type(SHORTEN), x, secret, output=Operand(extension.operand_type(short), (5,)))
    y = b.add(extension.operation_type(LENGTHEN), encrypted, secret, output=Operand(T.TENSOR_FLOAT32, (5,)))
    b.output(y)
    return b.build()


def test_extension_values_are_tensors_of_elements(device: Device, events: Callable[[], list[str]]) -> None:
    outcome = prepare(shortened(), device)
    assert parts(outcome.placement) == [("Newer", (0, 1))]
    events()
    x = floats(5)
    (y,) = execute(outcome, [x])[1]
    np.testing.assert_array_equal(y.view(np.uint32), x.view(np.uint32) & 0xFFFFFF00)
    assert [line for line in events() if not line.startswith("lies")] == [
        *("in 2.32.1 5", "out 1.8.3 5", "key 1.8.3"),
        *("in 1.8.3 5", "out 2.32.1 5", "key 1.8.3"),
    ]


@pytest.mark.parametrize("type_", [SHORTEN, LENGTHEN])
def test_extension_values_are_inputs_and_outputs(device: Device, events: Callable[[], list[str]], type_: int) -> None:
    b = ModelBuilder()
    extension = b.extension(NAME)
    operands = [Operand(T.TENSOR_FLOAT32, (0,)), Operand(extension.operand_type(SHORT), (0,))]
    source, target = operands if type_ == SHORTEN else reversed(operands)
    secret = b.constant(bytes(3), extension.operand_type(SECRET))
    x = b.input(source.type, source.dimensions)
    b.output(b.add(extension.operation_type(type_), x, secret, output=target))
    prepared = prepare(b.build(), device).prepared_model
    assert prepared is not None
    numbers = np.array([1, -2.5], np.float32)
    shortened = b"\x00\x80\x3f\x00\x20\xc0"
    value = numbers if type_ == SHORTEN else np.frombuffer(shortened, "V3")
    model_io = ModelIO(prepared.inputs, prepared.outputs, (), ())
    (output,) = model_io.to_outputs(prepared.execute_synchronously(model_io.request([value])))
    assert output.shape == (2,)
    assert output.tobytes() == (shortened if type_ == SHORTEN else numbers.tobytes())


def test_device_lists_the_operand_types(device: Device) -> None:
    types = (ExtensionOperandTypeInformation(SHORT, True, 3), ExtensionOperandTypeInformation(SECRET, False, 3))
    assert device.get_supported_extensions() == (Extension(NAME, types),)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (shortened(key=b"abcd"), "operand 0 has 4 bytes; expected [] elements of 3"),
        (shortened(short=9), f"operand 2 has type 9 of {NAME}, which the backend does not list"),
        (shortened(short=SECRET), "wrong operands"),
    ],
)
def test_invalid_extension_operands_are_rejected(device: Device, model: Model, reason: str) -> None:
    placed = device.get_supported_operations(GivenModel(model))[1].operations
    assert placed[0].refusals[0].reason == reason


def test_raw_bytes_become_elements(backend: Backend) -> None:
    types = backend._types  # type: ignore[attr-defined]
    (graph,) = build_graphs(shortened())
    raw = np.arange(15, dtype=np.uint8)
    elements = types.as_elements(graph, 2, raw)
    assert (elements.shape, elements.itemsize, elements.tobytes()) == ((5,), 3, raw.tobytes())
    assert types.as_elements(graph, 2, elements) is elements
    with pytest.raises(HalError, match=r"operand 2 has 14 bytes; expected \[5\] elements of 3"):
        types.as_elements(graph, 2, raw[1:])


def test_empty_elements_are_rejected(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWER", "impossible")
    with pytest.raises(LoadError, match=f"operand type 5 of {NAME} has 0 bytes; expected 1 to 65535"):
        load(file_candidate(plugin))


# ---- Optimization ------------------------------------------------------------------------------------------


def test_substitution_runs(device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The substitution of operations 1 and 2 returns 7, and the next operation negates it."""
    monkeypatch.setenv("NEWER", "substitute")
    outcome = prepare(chain(4), device)
    hooks = [name for n in (1, 2, 3) for name in (f"before_load {n}", f"after_load {n}")]
    recorded = [line for line in events() if not line.startswith("mode")]
    assert recorded == ["compile 2", *hooks[:2], *hooks[2:3], "compile 1", *hooks[3:5], "compile 1", hooks[5]]
    assert execute(outcome, [floats(8)])[1][0].tolist() == [-7] * 8
    events()
    del outcome
    gc.collect()
    assert sorted(events()) == ["release 1", "release 1", "release 2"]


def test_failed_operations_go_to_other_backends(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, reason in (
        ("fails resize", "the backend gave no reason"),
        ("fails_with_a_reason resize", "no room for it"),
    ):
        monkeypatch.setenv("NEWER", words)
        outcome = prepare(chain(3, LARGE), device)
        assert parts(outcome.placement) == [("Newer", (0,)), ("CpuRef", (1,)), ("Newer", (2,))]
        assert outcome.placement.operations[1].refusals[0].reason == reason
        x = floats(*LARGE)
        np.testing.assert_array_equal(execute(outcome, [x])[1][0], -x)


def test_cache_restores_substitutions(
    plugin: Path, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWER", "substitute")
    pair = Pair()
    devices = [
        Device("test", [load(file_candidate(plugin)).backend], DeviceOptions(cache=CacheOptions(KEY))) for _ in range(2)
    ]
    try:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        launch_preparation(devices[0], chain(4), outcomes.put, cache=pair.files())
        assert outcomes.get(timeout=60).cache.state == CacheState.SAVED
        assert [line for line in events() if line.startswith("save")] == ["save 0", "save 1", "save 0"]
        monkeypatch.setenv("NEWER", "fail_none")  # it would fail if the host called `optimize`
        devices[1].prepare_model_from_cache(outcomes.put, pair.files())
        loaded = outcomes.get(timeout=60)
        assert loaded.cache.state == CacheState.HIT
        assert [line for line in events() if line.startswith("load")] == ["load 0", "load 1", "load 0"]
        assert execute(loaded, [floats(8)])[1][0].tolist() == [-7] * 8
    finally:
        for device in devices:
            device.close()
        pair.close()


@pytest.mark.parametrize(
    ("words", "reason", "released"),
    [
        ("fail_none", "the backend named operation 99 of 4", []),
        ("substitute outside", "the backend named operation 99 of 4", []),
        ("substitute many", "the backend asked for a part of 99 operations of 4", []),
        ("substitute apart", "cannot be substituted as a unit", ["release 2"]),
        ("substitute stranger", "substitutes an unknown part, or a part twice", ["kept 0"]),
        ("substitute twice", "substitutes an unknown part, or a part twice", ["release 2"]),
        ("substitute then_error", "on second thoughts", ["release 2"]),
    ],
)
def test_invalid_optimizations_fail_to_compile(
    device: Device,
    events: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    reason: str,
    released: list[str],
) -> None:
    monkeypatch.setenv("NEWER", words)
    outcome = prepare(chain(4), device)
    assert parts(outcome.placement) == [("CpuRef", (0, 1, 2, 3))]
    assert reason in outcome.placement.operations[0].refusals[0].reason
    gc.collect()
    assert [line for line in events() if line.startswith(("release", "kept"))] == released


# ---- Spans, and inputs in shared memory ---------------------------------------------------------------------


def test_spans_of_operations(device: Device) -> None:
    spans = execute_profiled(prepare(chain(2), device), [floats(8)]).spans
    assert [
        (span.kind, span.name, span.operations) for span in spans if span.kind in (SpanKind.OPERATION, SpanKind.WORK)
    ] == [
        (SpanKind.OPERATION, "the first", (0,)),
        (SpanKind.WORK, "none", ()),
        (SpanKind.OPERATION, "the first", (1,)),
        (SpanKind.WORK, "none", ()),
    ]


@pytest.mark.parametrize(("words", "is_shared"), [("", False), ("capable", True)])
def test_shared_inputs_are_passed_without_a_copy(
    plugin: Path, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, words: str, is_shared: bool
) -> None:
    """A client can change them at any time, so only a backend with the capability CopiesInputs gets pointers."""
    monkeypatch.setenv("NEWER", words)
    descriptor = os.memfd_create("shared")
    os.truncate(descriptor, 4096)
    memory = np.frombuffer(mmap.mmap(descriptor, 4096), np.uint8)
    os.close(descriptor)
    memory[:32].view(np.float32)[:] = 3
    argument = RequestArgument(False, DataLocation(0, 0, 32))
    request = Request((argument,), (RequestArgument(False, DataLocation(1)),), (Memory(memory), ReturnedPool()))
    with device_of(load(file_candidate(plugin)).backend) as device:
        prepared = prepare(chain(1), device).prepared_model
        assert prepared is not None
        (returned,) = prepared.execute_synchronously(request).returned
    assert returned is not None and returned.view(np.float32).tolist() == [-3] * 8
    recorded = events()
    assert ("lies in /memfd:shared" in recorded) == is_shared
    assert not any(line.startswith("planned late") for line in recorded)
