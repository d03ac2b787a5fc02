"""Executions on native backends: the example of the project, and the frozen plug-in with all hooks."""

import gc
import logging
import queue
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.errors import HalError
from nnhal.types import (
    AnyArray,
    CacheState,
    ErrorStatus,
    Extension,
    Model,
    Operand,
    PerformanceInfo,
    PrepareModelConfig,
    Span,
    SpanKind,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend, CompiledSubgraph, CompileOptions, Sections
from nnhal_driver.backends.deferral import DeferringRun
from nnhal_driver.backends.identity import full_fingerprint, full_version
from nnhal_driver.backends.native.compiled import NativeSubgraph
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from nnhal_driver.execution.plan import RunContext
from nnhal_driver.execution.profiling import PartitionProfile, SpanRecorder
from nnhal_driver.graph import SubgraphView, build_graphs, subgraph_view
from nnhal_driver.preparation.launch import GivenModel
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE
from tests.driver.backends.native.building import EXAMPLE, HEADERS, build, example, frozen
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import KEY, Pair
from tests.driver.one_operation import execute, execute_profiled, float_tensor, model_of, prepare, tensor


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example(tmp_path_factory.mktemp("simple"))


@pytest.fixture(scope="module")
def frozen_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return frozen(tmp_path_factory.mktemp("frozen"))


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file to which the frozen plug-in writes its calls."""
    path = tmp_path / "events"
    path.touch()
    monkeypatch.setenv("FROZEN_EVENTS", str(path))
    return path


def _backend(path: Path) -> Backend:
    return load(file_candidate(path)).backend


@pytest.fixture
def device(simple: Path) -> Iterator[Device]:
    """Yield a device with the example before CpuRef."""
    device = Device("test", [_backend(simple), *registry.create(["CpuRef"])])
    yield device
    device.close()


def _floats(*shape: int) -> AnyArray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


SHAPE = (400, 500)
"""A shape for which a partition is worth its transitions."""


def _chain() -> Model:
    """Return half = relu6((a + b) * 0.5) and relu(half) - b. The example does not support SUB."""
    b = ModelBuilder()
    a, c = b.input(T.TENSOR_FLOAT32, SHAPE), b.input(T.TENSOR_FLOAT32, SHAPE)
    output = Operand(T.TENSOR_FLOAT32, SHAPE)
    total = b.add(Op.ADD, a, c, 0, output=output)
    half = b.add(Op.MUL, total, np.array([0.5], np.float32), 3, output=output)
    positive = b.add(Op.RELU, half, output=output)
    b.output(half)
    b.output(b.add(Op.SUB, positive, c, 0, output=output))
    return b.build()


def test_graph_is_split_between_the_example_and_cpu_ref(device: Device) -> None:
    outcome = prepare(_chain(), device)
    assert [(partition.backend, len(partition.operations)) for partition in outcome.placement.partitions] == [
        ("Simple", 3),
        ("CpuRef", 1),
    ]
    for scale in (1, 30):
        a, c = scale * _floats(*SHAPE), scale * _floats(*SHAPE)[::-1]
        half, difference = execute(outcome, [a, c])[1]
        expected = np.clip((a + c) * np.float32(0.5), 0, 6)
        np.testing.assert_array_equal(half, expected)
        np.testing.assert_array_equal(difference, expected - c)


SMALL = Operand(T.TENSOR_FLOAT32, (16,))


def _fusable() -> Model:
    """Return relu(x + y) * y. The example fuses ADD and RELU."""
    b = ModelBuilder()
    x, y = b.input(T.TENSOR_FLOAT32, [16]), b.input(T.TENSOR_FLOAT32, [16])
    positive = b.add(Op.RELU, b.add(Op.ADD, x, y, 0, output=SMALL), output=SMALL)
    b.output(b.add(Op.MUL, positive, y, 0, output=SMALL))
    return b.build()


X, Y = _floats(16), _floats(16)[::-1].copy()


def test_example_fuses_and_reports_spans(device: Device) -> None:
    result = execute_profiled(prepare(_fusable(), device), [X, Y])
    spans = [
        (span.kind, span.name, span.operations)
        for span in result.spans
        if span.kind in (SpanKind.OPERATION, SpanKind.WORK)
    ]
    assert spans == [(SpanKind.WORK, "fused RELU", ()), (SpanKind.OPERATION, "MUL", (2,))]
    assert result.returned[0] is not None
    np.testing.assert_array_equal(result.returned[0].view(np.float32), (X + Y).clip(0) * Y)


def test_addition_with_two_readers_is_not_fused(device: Device) -> None:
    b = ModelBuilder()
    x, y = b.input(T.TENSOR_FLOAT32, [16]), b.input(T.TENSOR_FLOAT32, [16])
    total = b.add(Op.ADD, x, y, 0, output=SMALL)
    b.output(b.add(Op.RELU, total, output=SMALL))
    b.output(b.add(Op.MUL, total, y, 0, output=SMALL))
    positive, product = execute(prepare(b.build(), device), [X, Y])[1]
    np.testing.assert_array_equal(positive, (X + Y).clip(0))
    np.testing.assert_array_equal(product, (X + Y) * Y)


def test_example_plans_a_chain_in_two_pieces(simple: Path) -> None:
    """The chain has five results of 64 bytes, two of them in use at a time. The sixth is the output."""
    b = ModelBuilder()
    x = value = b.input(T.TENSOR_FLOAT32, [16])
    for _ in range(6):
        value = b.add(Op.ADD, value, x, 0, output=SMALL)
    b.output(value)
    (graph,) = build_graphs(b.build())
    compiled = _backend(simple).compile(subgraph_view(graph, range(6), False), CompileOptions(0))
    assert isinstance(compiled, NativeSubgraph)
    assert (compiled.planned_memory.manager.peak_bytes, compiled.planned_memory.manager.sum_bytes) == (2 * 64, 5 * 64)
    output = _Output()
    for _ in range(2):
        compiled.execute([X], [output], _run_context())
        np.testing.assert_allclose(output.value, 7 * X, rtol=1e-6)


def test_example_keeps_values_that_are_read_later(device: Device) -> None:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [16])
    first = value = b.add(Op.ADD, x, x, 0, output=SMALL)
    for _ in range(3):
        value = b.add(Op.ADD, value, x, 0, output=SMALL)
    b.output(b.add(Op.MUL, first, value, 0, output=SMALL))
    np.testing.assert_allclose(execute(prepare(b.build(), device), [X])[1][0], 10 * X * X, rtol=1e-6)


@pytest.mark.parametrize(("activation", "low", "high"), [(0, -9e9, 9e9), (1, 0, 9e9), (2, -1, 1), (3, 0, 6)])
def test_fused_activations(device: Device, activation: int, low: float, high: float) -> None:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [50])
    b.output(b.add(Op.MUL, x, np.array([9.0], np.float32), activation, output=Operand(T.TENSOR_FLOAT32, (50,))))
    value = _floats(50)
    outcome = prepare(b.build(), device)
    assert outcome.placement.partitions[0].backend == "Simple"
    np.testing.assert_array_equal(execute(outcome, [value])[1][0], np.clip(value * np.float32(9), low, high))


def test_plugin_gives_reasons(device: Device) -> None:
    ints = Operand(T.TENSOR_INT32, (2,))
    b = ModelBuilder()
    x, y = b.input(T.TENSOR_INT32, [2]), b.input(T.TENSOR_FLOAT32, [0])
    b.output(b.add(Op.ADD, x, x, 0, output=ints))
    b.output(b.add(Op.RELU, y, output=Operand(T.TENSOR_FLOAT32, (0,))))
    placed = device.get_supported_operations(GivenModel(b.build()))[1].operations
    assert [operation.refusals[0].reason for operation in placed] == [
        "only TENSOR_FLOAT32 is supported",
        "shapes must be known",
    ]
    assert [operation.backend for operation in placed] == ["CpuRef", "CpuRef"]


def _extension_model(name: str) -> Model:
    b = ModelBuilder()
    x, y = b.input(T.TENSOR_FLOAT32, [4]), b.input(T.TENSOR_FLOAT32, [4])
    squared = b.extension(name).operation_type(0)
    b.output(b.add(squared, x, y, output=Operand(T.TENSOR_FLOAT32, (4,))))
    return b.build()


def test_operation_of_a_vendor_extension(device: Device) -> None:
    assert device.get_supported_extensions() == (Extension("com.example.simple"),)
    outcome = prepare(_extension_model("com.example.simple"), device)
    assert outcome.placement.partitions[0].backend == "Simple"
    x, y = _floats(4), 2 * _floats(4)
    np.testing.assert_array_equal(execute(outcome, [x, y])[1][0], (x - y) * (x - y))


def test_unknown_extension_is_not_supported(device: Device) -> None:
    supported, placement = device.get_supported_operations(GivenModel(_extension_model("com.example.other")))
    assert supported == [False]
    assert placement.operations[0].refusals[0].reason == "there is no kernel for it"


def test_inputs_with_gaps_are_made_contiguous(simple: Path) -> None:
    backend = _backend(simple)
    view = _relu_view(3)
    compiled = backend.compile(view, CompileOptions(0))
    output = _Output()
    compiled.execute([np.array([-1, 9, 2, 9, -3, 9], np.float32)[::2]], [output], _run_context())
    assert output.value.tolist() == [0, 2, 0]


def _run_context(spans: SpanRecorder | None = None) -> RunContext:
    profile = None if spans is None else PartitionProfile(spans, "Frozen", 0, (0,))
    return RunContext(NO_DEADLINE, Cancellation(), 0, spans, profile)


class _Output:
    declared: tuple[int, ...] = ()
    value: AnyArray

    def write(self, array: Any, *, keep: bool = False) -> None:
        self.value = array


def _relu_view(count: int, type_: Op = Op.RELU) -> SubgraphView:
    model = model_of(type_, [float_tensor(np.zeros(count))], [tensor(T.TENSOR_FLOAT32, (count,))], constants=False)
    return subgraph_view(build_graphs(model)[0], [0], False)


def _read_events(path: Path) -> list[str]:
    """Return and clear the calls that the plug-in recorded."""
    lines = path.read_text().split("\n")[:-1]
    path.write_text("")
    return lines


def _run(compiled: CompiledSubgraph, values: list[float]) -> AnyArray:
    output = _Output()
    compiled.execute([np.array(values, np.float32)], [output], _run_context())
    return output.value


def test_hooks_are_called_in_order(frozen_file: Path, events: Path) -> None:
    backend = _backend(frozen_file)
    compiled = backend.compile(_relu_view(2, Op.NEG), CompileOptions(0))
    assert _read_events(events) == ["before_load 1", "compile", "after_load 1"]
    execution = ["execute_begin", "execute", "allocate_buffer 8", "wait_finish", "execute_end"]
    value = _run(compiled, [1, 2])
    assert value.tolist() == [-1, -2]
    assert _read_events(events) == ["resize_begin", "resize 2", "resize_end", *execution]
    _run(compiled, [3, 4])
    assert _read_events(events) == [*execution, "free_buffer 8"]
    assert _run(compiled, [5, 6, 7]).tolist() == [-5, -6, -7]
    assert _read_events(events)[:3] == ["resize_begin", "resize 3", "resize_end"]
    del compiled, value
    gc.collect()
    assert _read_events(events) == ["before_unload 1", "release", "after_unload 1", "free_buffer 8"]
    del backend
    gc.collect()
    assert _read_events(events) == ["destroy"]


def test_backend_outlives_its_compiled_subgraphs(frozen_file: Path, events: Path) -> None:
    backend = _backend(frozen_file)
    compiled = backend.compile(_relu_view(1, Op.NEG), CompileOptions(0))
    del backend
    gc.collect()
    value = _run(compiled, [1])
    assert "destroy" not in _read_events(events)
    del compiled
    gc.collect()
    assert value.tolist() == [-1]
    assert _read_events(events) == ["before_unload 1", "release", "after_unload 1"]
    del value  # its memory belongs to the plug-in
    gc.collect()
    assert _read_events(events) == ["free_buffer 4", "destroy"]


def test_properties_of_the_backend(frozen_file: Path) -> None:
    backend = _backend(frozen_file)
    assert (backend.id, backend.version) == ("Frozen", "1.0")
    assert backend.capabilities() == {"Frozen": True, "ConcurrentExecution": False}
    assert backend.performance() == PerformanceInfo(0.5, 0.25)
    assert backend.extensions() == [Extension("com.example.frozen")]


def test_save_and_load(frozen_file: Path, events: Path) -> None:
    backend = _backend(frozen_file)
    view = _relu_view(1, Op.NEG)
    saved = backend.compile(view, CompileOptions(0)).save()
    assert saved == Sections(b"frozen")
    _read_events(events)
    loaded = backend.load(view, saved, CompileOptions(0))
    assert _read_events(events)[:2] == ["before_load 2", "load"]
    assert _run(loaded, [2]).tolist() == [-2]
    with pytest.raises(HalError, match="not what was saved"):
        backend.load(view, Sections(b"frozem"), CompileOptions(0))


@pytest.mark.parametrize("fused", [False, True])
def test_compilation_cache_restores_a_model_of_the_example(simple: Path, fused: bool) -> None:
    model = _fusable() if fused else _extension_model("com.example.simple")
    pair = Pair()
    devices = [Device("test", [_backend(simple)], DeviceOptions(cache=CacheOptions(KEY))) for _ in range(2)]
    try:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        launch_preparation(devices[0], model, outcomes.put, PrepareModelConfig(), pair.files())
        assert outcomes.get(timeout=60).cache.state == CacheState.SAVED
        devices[1].prepare_model_from_cache(outcomes.put, pair.files())
        x, y = (X, Y) if fused else (X[:4], Y[:4])
        expected = (X + Y).clip(0) * Y if fused else (x - y) * (x - y)
        result = execute_profiled(outcomes.get(timeout=60), [x, y])
        assert result.returned[0] is not None
        np.testing.assert_array_equal(result.returned[0].view(np.float32), expected)
        assert any(span.name == "fused RELU" for span in result.spans) == fused
    finally:
        for device in devices:
            device.close()
        pair.close()


def test_rebuilt_plugin_has_another_version(simple: Path, tmp_path: Path) -> None:
    rebuilt = build(EXAMPLE, tmp_path / "Example_Simple_backend.so", HEADERS, "-DBUILT_AGAIN", "-g")
    for identify in (full_version, full_fingerprint):
        assert identify(_backend(simple)) == identify(_backend(simple)) != identify(_backend(rebuilt))
    assert full_version(_backend(rebuilt)) == f"1.0+{sha256(rebuilt.read_bytes()).hexdigest()[:8]}"


def test_errors_have_status_and_reason(frozen_file: Path, events: Path) -> None:
    compiled = _backend(frozen_file).compile(_relu_view(1, Op.NEG), CompileOptions(0))
    with pytest.raises(HalError) as error:
        _run(compiled, [13])
    assert error.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert error.value.reason == "13 cannot be negated"
    assert _read_events(events)[-1] == "execute_end"
    del error  # its traceback references the output
    gc.collect()
    assert _read_events(events) == ["free_buffer 4"]
    assert _run(compiled, [1]).tolist() == [-1]


def test_plugin_sees_cancellation(frozen_file: Path) -> None:
    compiled = _backend(frozen_file).compile(_relu_view(1, Op.NEG), CompileOptions(0))

    class LateRun(DeferringRun):
        deferred = None
        calls = 0
        profile = None

        def check(self) -> None:
            self.calls += 1
            if self.calls == 2:
                raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "too late")

    with pytest.raises(HalError, match="too late"):
        compiled.execute([np.array([1], np.float32)], [_Output()], LateRun())


def test_outputs_must_match_declared_shape_and_limit(frozen_file: Path) -> None:
    backend = _backend(frozen_file)
    output = _Output()
    output.declared = (5,)
    with pytest.raises(HalError, match=r"V-RUN-04: output 0 .* has shape \[1\]; declared is \[5\]"):
        backend.compile(_relu_view(1, Op.NEG), CompileOptions(0)).execute(
            [np.array([1], np.float32)], [output], _run_context()
        )
    small = backend.compile(_relu_view(1, Op.NEG), CompileOptions(0, tensor_bytes=8))
    assert _run(small, [1, 2]).tolist() == [-1, -2]
    with pytest.raises(HalError, match=r"12 bytes; the limit is 8 \(limit tensor_bytes\)"):
        _run(small, [1, 2, 3])


def test_spans_are_logged_at_debug_level(frozen_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    compiled = _backend(frozen_file).compile(_relu_view(1, Op.NEG), CompileOptions(0))
    with caplog.at_level(logging.DEBUG, "nnhal_driver.backends.native"):
        _run(compiled, [1])
    assert any("name=NEG start_ns=5 us=7.0" in record.getMessage() for record in caplog.records)


def test_spans_of_a_profiled_execution(frozen_file: Path) -> None:
    compiled = _backend(frozen_file).compile(_relu_view(1, Op.NEG), CompileOptions(0))
    spans = SpanRecorder()
    compiled.execute([np.array([1], np.float32)], [_Output()], _run_context(spans))
    expected = Span(SpanKind.WORK, "NEG", "Frozen", 0, (), 5 - spans.start_ns, 7000)
    assert spans.all() == (expected,)


def test_closed_devices_leave_nothing(simple: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No object, block, mapping or descriptor remains. The example reports blocks that were not freed."""

    def use_two_devices() -> None:
        devices = [Device("test", [_backend(simple), *registry.create(["CpuRef"])]) for _ in range(2)]
        outcomes: list[Outcome] = [prepare(_chain(), device) for device in devices]
        for outcome in outcomes:
            execute(outcome, [_floats(*SHAPE), _floats(*SHAPE)])
        for device in devices:
            device.close()

    use_two_devices()
    gc.collect()
    files = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        use_two_devices()
    gc.collect()
    assert str(simple) not in Path("/proc/self/maps").read_text()
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    assert "were not freed" not in capfd.readouterr().err
