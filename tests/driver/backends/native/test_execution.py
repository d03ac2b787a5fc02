"""Native backends at work: the example of the project, and the frozen plug-in with all its hooks."""

import gc
import logging
import queue
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from driver.backends import registry
from driver.backends.api import Backend, CompiledSubgraph, CompileOptions, Sections
from driver.backends.discovery import file_candidate
from driver.backends.loading import load
from driver.backends.native.compiled import NativeSubgraph
from driver.cancellation import Cancellation
from driver.deadline import NO_DEADLINE
from driver.device import Device, Outcome
from driver.graph import SubgraphView, graphs, subgraph_view
from driver.plan import Progress
from driver.profiling import PartitionProfile, Spans
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
from tests.driver.backends.native.building import EXAMPLE, HEADERS, build, example, frozen
from tests.driver.caching.pair import KEY, Pair
from tests.driver.one_operation import execute, float_tensor, model_of, prepare, tensor
from tests.driver.test_profiling import profiled


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example(tmp_path_factory.mktemp("simple"))


@pytest.fixture(scope="module")
def frozen_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return frozen(tmp_path_factory.mktemp("frozen"))


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the frozen plug-in writes what is called."""
    path = tmp_path / "events"
    path.touch()
    monkeypatch.setenv("FROZEN_EVENTS", str(path))
    return path


def _backend(path: Path) -> Backend:
    return load(file_candidate(path)).backend


@pytest.fixture
def device(simple: Path) -> Iterator[Device]:
    """The example before CpuRef."""
    made = Device("test", [_backend(simple), *registry.create(["CpuRef"])])
    yield made
    made.close()


def _floats(*shape: int) -> AnyArray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


SHAPE = (400, 500)
"""Large enough that a partition pays for its boundary."""


def _chain() -> Model:
    """relu6((a + b) * 0.5), and its relu less b, of which SUB is not the example's."""
    b = ModelBuilder()
    a, c = b.input(T.TENSOR_FLOAT32, SHAPE), b.input(T.TENSOR_FLOAT32, SHAPE)
    output = Operand(T.TENSOR_FLOAT32, SHAPE)
    total = b.add(Op.ADD, a, c, 0, output=output)
    half = b.add(Op.MUL, total, np.array([0.5], np.float32), 3, output=output)
    positive = b.add(Op.RELU, half, output=output)
    b.output(half)
    b.output(b.add(Op.SUB, positive, c, 0, output=output))
    return b.build()


def test_a_graph_on_the_example_and_cpu_ref(device: Device) -> None:
    outcome = prepare(_chain(), device)
    assert [(one.backend, len(one.operations)) for one in outcome.placement.partitions] == [
        ("Simple", 3),
        ("CpuRef", 1),
    ]
    for scale in (1, 30):
        a, c = scale * _floats(*SHAPE), scale * _floats(*SHAPE)[::-1]
        half, less = execute(outcome, [a, c])[1]
        expected = np.clip((a + c) * np.float32(0.5), 0, 6)
        np.testing.assert_array_equal(half, expected)
        np.testing.assert_array_equal(less, expected - c)


SMALL = Operand(T.TENSOR_FLOAT32, (16,))


def _fusable() -> Model:
    """relu(x + y) * y: ADD and RELU become one step."""
    b = ModelBuilder()
    x, y = b.input(T.TENSOR_FLOAT32, [16]), b.input(T.TENSOR_FLOAT32, [16])
    positive = b.add(Op.RELU, b.add(Op.ADD, x, y, 0, output=SMALL), output=SMALL)
    b.output(b.add(Op.MUL, positive, y, 0, output=SMALL))
    return b.build()


X, Y = _floats(16), _floats(16)[::-1].copy()


def test_the_example_fuses_and_tells_of_its_operations(device: Device) -> None:
    result = profiled(prepare(_fusable(), device), [X, Y])
    told = [(span.kind, span.name, span.operations) for span in result.spans if span.kind != SpanKind.PARTITION]
    assert told == [(SpanKind.WORK, "fused RELU", ()), (SpanKind.OPERATION, "MUL", (2,))]
    assert result.returned[0] is not None
    np.testing.assert_array_equal(result.returned[0].view(np.float32), (X + Y).clip(0) * Y)


def test_what_is_read_elsewhere_is_not_fused(device: Device) -> None:
    b = ModelBuilder()
    x, y = b.input(T.TENSOR_FLOAT32, [16]), b.input(T.TENSOR_FLOAT32, [16])
    total = b.add(Op.ADD, x, y, 0, output=SMALL)
    b.output(b.add(Op.RELU, total, output=SMALL))
    b.output(b.add(Op.MUL, total, y, 0, output=SMALL))
    positive, product = execute(prepare(b.build(), device), [X, Y])[1]
    np.testing.assert_array_equal(positive, (X + Y).clip(0))
    np.testing.assert_array_equal(product, (X + Y) * Y)


def test_the_example_plans_a_chain_into_two_pieces(simple: Path) -> None:
    """Five results of 64 bytes, of which two are needed at a time; the sixth is the output."""
    b = ModelBuilder()
    x = value = b.input(T.TENSOR_FLOAT32, [16])
    for _ in range(6):
        value = b.add(Op.ADD, value, x, 0, output=SMALL)
    b.output(value)
    (graph,) = graphs(b.build())
    compiled = _backend(simple).compile(subgraph_view(graph, range(6), False), CompileOptions(0))
    assert isinstance(compiled, NativeSubgraph)
    assert (compiled.pieces.manager.peak_bytes, compiled.pieces.manager.sum_bytes) == (2 * 64, 5 * 64)
    output = _Output()
    for _ in range(2):
        compiled.execute([X], [output], _progress())
        np.testing.assert_allclose(output.value, 7 * X, rtol=1e-6)


def test_the_example_keeps_what_is_read_again_later(device: Device) -> None:
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


def test_reasons_of_the_plugin(device: Device) -> None:
    ints = Operand(T.TENSOR_INT32, (2,))
    b = ModelBuilder()
    x, y = b.input(T.TENSOR_INT32, [2]), b.input(T.TENSOR_FLOAT32, [0])
    b.output(b.add(Op.ADD, x, x, 0, output=ints))
    b.output(b.add(Op.RELU, y, output=Operand(T.TENSOR_FLOAT32, (0,))))
    placed = device.get_supported_operations(b.build())[1].operations
    assert [one.refusals[0].reason for one in placed] == ["only TENSOR_FLOAT32 is supported", "shapes must be known"]
    assert [one.backend for one in placed] == ["CpuRef", "CpuRef"]


def _extension_model(name: str) -> Model:
    b = ModelBuilder()
    x, y = b.input(T.TENSOR_FLOAT32, [4]), b.input(T.TENSOR_FLOAT32, [4])
    squared = b.extension(name).operation_type(0)
    b.output(b.add(squared, x, y, output=Operand(T.TENSOR_FLOAT32, (4,))))
    return b.build()


def test_an_operation_of_a_vendor_extension(device: Device) -> None:
    assert device.get_supported_extensions() == (Extension("com.example.simple"),)
    outcome = prepare(_extension_model("com.example.simple"), device)
    assert outcome.placement.partitions[0].backend == "Simple"
    x, y = _floats(4), 2 * _floats(4)
    np.testing.assert_array_equal(execute(outcome, [x, y])[1][0], (x - y) * (x - y))


def test_an_extension_that_nobody_has(device: Device) -> None:
    supported, placement = device.get_supported_operations(_extension_model("com.example.other"))
    assert supported == [False]
    assert placement.operations[0].refusals[0].reason == "there is no kernel for it"


def test_inputs_with_gaps_reach_the_plugin_without(simple: Path) -> None:
    backend = _backend(simple)
    view = _relu_view(3)
    compiled = backend.compile(view, CompileOptions(0))
    output = _Output()
    compiled.execute([np.array([-1, 9, 2, 9, -3, 9], np.float32)[::2]], [output], _progress())
    assert output.value.tolist() == [0, 2, 0]


def _progress(spans: Spans | None = None) -> Progress:
    profile = None if spans is None else PartitionProfile(spans, "Frozen", 0, (0,))
    return Progress(NO_DEADLINE, Cancellation(), 0, spans, profile)


class _Output:
    declared: tuple[int, ...] = ()

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        self.value = array


def _relu_view(count: int, type_: Op = Op.RELU) -> SubgraphView:
    model = model_of(type_, [float_tensor(np.zeros(count))], [tensor(T.TENSOR_FLOAT32, (count,))], constants=False)
    return subgraph_view(graphs(model)[0], [0], False)


def _lines(path: Path) -> list[str]:
    lines = path.read_text().split("\n")[:-1]
    path.write_text("")
    return lines


def _run(compiled: CompiledSubgraph, values: list[float]) -> AnyArray:
    output = _Output()
    compiled.execute([np.array(values, np.float32)], [output], _progress())
    return output.value


def test_every_hook_is_called_in_its_order(frozen_file: Path, events: Path) -> None:
    backend = _backend(frozen_file)
    compiled = backend.compile(_relu_view(2, Op.NEG), CompileOptions(0))
    assert _lines(events) == ["before_load 1", "compile", "after_load 1"]
    execution = ["execute_begin", "execute", "allocate_buffer 8", "wait_finish", "execute_end"]
    value = _run(compiled, [1, 2])
    assert value.tolist() == [-1, -2]
    assert _lines(events) == ["resize_begin", "resize 2", "resize_end", *execution]
    _run(compiled, [3, 4])
    assert _lines(events) == [*execution, "free_buffer 8"]
    assert _run(compiled, [5, 6, 7]).tolist() == [-5, -6, -7]
    assert _lines(events)[:3] == ["resize_begin", "resize 3", "resize_end"]
    del compiled, value
    gc.collect()
    assert _lines(events) == ["before_unload 1", "release", "after_unload 1", "free_buffer 8"]
    del backend
    gc.collect()
    assert _lines(events) == ["destroy"]


def test_an_object_outlives_what_it_compiled(frozen_file: Path, events: Path) -> None:
    backend = _backend(frozen_file)
    compiled = backend.compile(_relu_view(1, Op.NEG), CompileOptions(0))
    del backend
    gc.collect()
    value = _run(compiled, [1])
    assert "destroy" not in _lines(events)
    del compiled
    gc.collect()
    assert value.tolist() == [-1]
    assert _lines(events) == ["before_unload 1", "release", "after_unload 1"]
    del value  # the memory is the plug-in's own
    gc.collect()
    assert _lines(events) == ["free_buffer 4", "destroy"]


def test_what_it_says_of_itself(frozen_file: Path) -> None:
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
    _lines(events)
    loaded = backend.load(view, saved, CompileOptions(0))
    assert _lines(events)[:2] == ["before_load 2", "load"]
    assert _run(loaded, [2]).tolist() == [-2]
    with pytest.raises(HalError, match="not what was saved"):
        backend.load(view, Sections(b"frozem"), CompileOptions(0))


@pytest.mark.parametrize("fused", [False, True])
def test_a_model_of_the_example_from_the_compilation_cache(simple: Path, fused: bool) -> None:
    model = _fusable() if fused else _extension_model("com.example.simple")
    pair = Pair()
    devices = [Device("test", [_backend(simple)], cache_key=KEY) for _ in range(2)]
    try:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        devices[0].prepare_model(model, outcomes.put, PrepareModelConfig(), pair.files())
        assert outcomes.get(timeout=60).cache.state == CacheState.SAVED
        devices[1].prepare_model_from_cache(outcomes.put, pair.files())
        x, y = (X, Y) if fused else (X[:4], Y[:4])
        expected = (X + Y).clip(0) * Y if fused else (x - y) * (x - y)
        result = profiled(outcomes.get(timeout=60), [x, y])
        assert result.returned[0] is not None
        np.testing.assert_array_equal(result.returned[0].view(np.float32), expected)
        assert any(span.name == "fused RELU" for span in result.spans) == fused
    finally:
        for device in devices:
            device.close()
        pair.close()


def test_a_plugin_that_was_built_again_is_another(simple: Path, tmp_path: Path) -> None:
    again = build(EXAMPLE, tmp_path / "Example_Simple_backend.so", HEADERS, "-DBUILT_AGAIN", "-g")
    assert _backend(simple).fingerprint() == _backend(simple).fingerprint() != _backend(again).fingerprint()


def test_a_failure_carries_status_and_reason(frozen_file: Path, events: Path) -> None:
    compiled = _backend(frozen_file).compile(_relu_view(1, Op.NEG), CompileOptions(0))
    with pytest.raises(HalError) as error:
        _run(compiled, [13])
    assert error.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert error.value.reason == "13 cannot be negated"
    assert _lines(events)[-1] == "execute_end"
    del error  # its traceback holds the output
    gc.collect()
    assert _lines(events) == ["free_buffer 4"]
    assert _run(compiled, [1]).tolist() == [-1]


def test_cancellation_reaches_the_plugin(frozen_file: Path) -> None:
    compiled = _backend(frozen_file).compile(_relu_view(1, Op.NEG), CompileOptions(0))

    class Late:
        calls = 0
        profile = None

        def check(self) -> None:
            self.calls += 1
            if self.calls == 2:
                raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "too late")

    with pytest.raises(HalError, match="too late"):
        compiled.execute([np.array([1], np.float32)], [_Output()], Late())


def test_outputs_are_held_to_what_is_declared_and_to_the_limit(frozen_file: Path) -> None:
    backend = _backend(frozen_file)
    output = _Output()
    output.declared = (5,)
    with pytest.raises(HalError, match=r"V-RUN-04: output 0 .* has shape \[1\], declared \[5\]"):
        backend.compile(_relu_view(1, Op.NEG), CompileOptions(0)).execute(
            [np.array([1], np.float32)], [output], _progress()
        )
    small = backend.compile(_relu_view(1, Op.NEG), CompileOptions(0, tensor_bytes=8))
    assert _run(small, [1, 2]).tolist() == [-1, -2]
    with pytest.raises(HalError, match=r"12 bytes; at most 8 \(limit tensor_bytes\)"):
        _run(small, [1, 2, 3])


def test_spans_are_logged_when_somebody_listens(frozen_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    compiled = _backend(frozen_file).compile(_relu_view(1, Op.NEG), CompileOptions(0))
    with caplog.at_level(logging.DEBUG, "driver.backends.native"):
        _run(compiled, [1])
    assert any("name=NEG start_ns=5 us=7.0" in record.getMessage() for record in caplog.records)


def test_spans_of_a_profiled_execution(frozen_file: Path) -> None:
    compiled = _backend(frozen_file).compile(_relu_view(1, Op.NEG), CompileOptions(0))
    spans = Spans()
    compiled.execute([np.array([1], np.float32)], [_Output()], _progress(spans))
    expected = Span(SpanKind.WORK, "NEG", "Frozen", 0, (), 5 - spans.began_ns, 7000)
    assert spans.all() == (expected,)


def test_two_runtimes_again_and_again(simple: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No object, block, mapping or descriptor is left; the example complains where a block of its allocator is."""

    def once() -> None:
        devices = [Device(name, [_backend(simple), *registry.create(["CpuRef"])]) for name in ("one", "two")]
        outcomes: list[Outcome] = [prepare(_chain(), device) for device in devices]
        for outcome in outcomes:
            execute(outcome, [_floats(*SHAPE), _floats(*SHAPE)])
        for device in devices:
            device.close()

    once()
    gc.collect()
    files = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        once()
    gc.collect()
    assert str(simple) not in Path("/proc/self/maps").read_text()
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    assert "were not freed" not in capfd.readouterr().err
