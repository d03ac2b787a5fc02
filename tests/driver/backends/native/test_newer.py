"""What header 1.1 added, used by a plug-in in C: memory, layouts, operand types, optimize, spans, shared inputs."""

import gc
import mmap
import os
import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from driver.backends import registry
from driver.backends.api import Backend, CompileOptions, SubgraphView
from driver.backends.discovery import file_candidate
from driver.backends.layout import Layout, convert
from driver.backends.loading import LoadError, load
from driver.backends.memory import aligned
from driver.backends.native.compiled import NativeSubgraph
from driver.device import Device, Outcome
from driver.graph import graphs, subgraph_view
from nnhal.builder import ModelBuilder
from nnhal.errors import HalError
from nnhal.tensors import Ends
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
from tests.driver.backends.native.building import newer
from tests.driver.caching.pair import KEY, Pair
from tests.driver.one_operation import execute, prepare
from tests.driver.test_placement import LARGE, device_of, parts
from tests.driver.test_profiling import profiled

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
    with device_of(backend, *registry.create(["CpuRef"])) as made:
        yield made


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What the plug-in noted since the last call."""
    path = tmp_path / "events"
    path.touch()
    monkeypatch.setenv("NEWER_EVENTS", str(path))

    def taken() -> list[str]:
        lines = path.read_text().splitlines()
        path.write_text("")
        return lines

    return taken


def chain(count: int, shape: tuple[int, ...] = (8,), declared: tuple[int, ...] | None = None) -> Model:
    """NEG of NEG of x, `count` of them."""
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
    (graph,) = graphs(model)
    return subgraph_view(graph, range(len(graph.operations)), False)


def floats(*shape: int) -> AnyArray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# ---- Planned memory ---------------------------------------------------------------------------------------


def test_pieces_hold_values_while_an_execution_runs(device: Device, events: Callable[[], list[str]]) -> None:
    """The plug-in notes where the host does not keep to the header; it notes none of that."""
    outcome = prepare(chain(1), device)
    assert [line for line in events() if "load" not in line] == ["compile 1", "mode 0"]
    for values in (floats(8), floats(8)[::-1]):
        np.testing.assert_array_equal(execute(outcome, [values])[1][0], -values)
    assert {line.split()[0] for line in events()} <= {"in", "out", "lies"}


def test_the_host_plans_what_shares_bytes(backend: Backend, events: Callable[[], list[str]]) -> None:
    """4096 bytes for one piece, and as many for one that shares with nobody; the STATIC one lies elsewhere."""
    compiled = backend.compile(view_of(chain(1)), CompileOptions(0))
    assert isinstance(compiled, NativeSubgraph)
    assert (compiled.pieces.manager.peak_bytes, compiled.pieces.manager.sum_bytes) == (8192, 8192)


@pytest.mark.parametrize(
    ("preference", "mode", "blocks"),
    [(ExecutionPreference.LOW_POWER, 1, 2), (ExecutionPreference.SUSTAINED_SPEED, 0, 1)],
)
def test_the_block_is_given_back_where_power_is_saved(
    backend: Backend, events: Callable[[], list[str]], preference: ExecutionPreference, mode: int, blocks: int
) -> None:
    sizes: list[int] = []

    def allocate(size: int) -> Bytes:
        sizes.append(size)
        return aligned(size)

    with device_of(backend) as device:
        told: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        device.prepare_model(chain(1), told.put, PrepareModelConfig(preference=preference))
        outcome = told.get(timeout=30)
        assert f"mode {mode}" in events()
        prepared = outcome.prepared_model
        assert prepared is not None
        compiled = prepared.plan.nodes[0].compiled  # type: ignore[attr-defined]
        compiled.pieces.manager._allocate = allocate
        for _ in range(2):
            assert execute(outcome, [np.ones(8, np.float32)])[1][0].tolist() == [-1] * 8
            assert compiled.pieces.manager.is_held == (blocks == 1)
        assert sizes == [8192] * blocks


def test_memory_is_planned_anew_for_other_shapes(
    backend: Backend, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWER", "resize")
    with device_of(backend) as device:
        outcome = prepare(chain(1, declared=(0,)), device)
        prepared = outcome.prepared_model
        assert prepared is not None
        manager = prepared.plan.nodes[0].compiled.pieces.manager  # type: ignore[attr-defined]
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


def test_an_execution_with_pieces_has_them_alone(
    plugin: Path, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the plug-in says that it could run several at once: RELU has no pieces, and no turn."""
    monkeypatch.setenv("NEWER", "capable")
    backend = load(file_candidate(plugin)).backend
    made = [backend.compile(view_of(model), CompileOptions(0)) for model in (chain(1), relu())]
    assert [one._turn is not None for one in made] == [True, False]  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", ["greedy static", "greedy dynamic"])
def test_too_much_memory_is_a_failure_to_compile(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("NEWER", words)
    outcome = prepare(chain(1), device)
    assert parts(outcome.placement) == [("CpuRef", (0,))]
    assert "there is no room" in outcome.placement.operations[0].refusals[0].reason


# ---- Layouts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "seen"), [("layout0", "1 2 3 6"), ("layout1", "1 6 2 3"), ("layout2", "1 2 2 3 4")])
def test_images_come_and_go_in_the_layout_of_the_plugin(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, layout: str, seen: str
) -> None:
    monkeypatch.setenv("NEWER", layout)
    outcome = prepare(relu(), device)
    assert parts(outcome.placement) == [("Newer", (0,))]
    x = floats(1, 2, 3, 6)
    np.testing.assert_array_equal(execute(outcome, [x])[1][0], x.clip(0))
    assert [line for line in events() if line[:2] in ("in", "ou")] == [f"in 2.32.1 {seen}", f"out 2.32.1 {seen}"]


def test_nothing_is_converted_between_parts_in_one_layout(
    device: Device, monkeypatch: pytest.MonkeyPatch, events: Callable[[], list[str]]
) -> None:
    b = ModelBuilder()
    value = b.input(T.TENSOR_FLOAT32, (1, 2, 3, 6))
    for _ in range(3):
        value = b.add(Op.RELU, value, output=Operand(T.TENSOR_FLOAT32, (1, 2, 3, 6)))
    b.output(value)
    converted: list[str] = []

    def counted(array: AnyArray, source: Layout, target: Layout, channels: int = 0) -> AnyArray:
        converted.append(target.name)
        return convert(array, source, target, channels)

    monkeypatch.setenv("NEWER", "layout2")
    outcome = prepare(b.build(), device)
    monkeypatch.setattr("driver.backends.layout.convert", counted)
    values = floats(1, 2, 3, 6)
    np.testing.assert_array_equal(execute(outcome, [values])[1][0], values.clip(0))
    assert converted == ["NC4HW4", "NHWC"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("layout7", "wants layout 7 for operand 0, from 0"),
        ("layout1 no_operand", "wants a layout for operand 99; each input or output can have one"),
        ("layout1 repeated", "each input or output can have one, and no other"),
        ("layout1 from_packed", "wants layout 1 for operand 1, from 2"),
    ],
)
def test_layouts_that_cannot_be(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, words: str, reason: str
) -> None:
    monkeypatch.setenv("NEWER", words)
    outcome = prepare(relu(), device)
    assert parts(outcome.placement) == [("CpuRef", (0,))]
    assert reason in outcome.placement.operations[0].refusals[0].reason
    gc.collect()
    assert "release 1" in events(), "what it compiled is let go"


def test_a_layout_of_what_is_no_image(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWER", "layout1")
    outcome = prepare(chain(1), device)
    assert "operand 0, whose shape [8] has none" in outcome.placement.operations[0].refusals[0].reason


# ---- Operand types of extensions -----------------------------------------------------------------------------


def shortened(key: bytes = b"abc", short: int = SHORT) -> Model:
    """x -> elements of three bytes -> y, which is x without the last byte of each number."""
    b = ModelBuilder()
    extension = b.extension(NAME)
    secret = b.constant(key, extension.operand_type(SECRET))
    x = b.input(T.TENSOR_FLOAT32, (5,))
    hidden = b.add(extension.operation_type(SHORTEN), x, secret, output=Operand(extension.operand_type(short), (5,)))
    y = b.add(extension.operation_type(LENGTHEN), hidden, secret, output=Operand(T.TENSOR_FLOAT32, (5,)))
    b.output(y)
    return b.build()


def test_values_of_an_extension_type_are_tensors_of_their_elements(
    device: Device, events: Callable[[], list[str]]
) -> None:
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
def test_they_come_and_go_with_a_request(device: Device, events: Callable[[], list[str]], type_: int) -> None:
    b = ModelBuilder()
    extension = b.extension(NAME)
    ends = [Operand(T.TENSOR_FLOAT32, (0,)), Operand(extension.operand_type(SHORT), (0,))]
    source, target = ends if type_ == SHORTEN else reversed(ends)
    secret = b.constant(bytes(3), extension.operand_type(SECRET))
    x = b.input(source.type, source.dimensions)
    b.output(b.add(extension.operation_type(type_), x, secret, output=target))
    prepared = prepare(b.build(), device).prepared_model
    assert prepared is not None
    numbers = np.array([1, -2.5], np.float32)
    shortened = b"\x00\x80\x3f\x00\x20\xc0"
    given = numbers if type_ == SHORTEN else np.frombuffer(shortened, "V3")
    made = Ends(prepared.inputs, prepared.outputs, (), ())
    (answer,) = made.results(prepared.execute_synchronously(made.request([given])))
    assert answer.shape == (2,)
    assert answer.tobytes() == (shortened if type_ == SHORTEN else numbers.tobytes())


def test_the_device_tells_of_the_types(device: Device) -> None:
    types = (ExtensionOperandTypeInformation(SHORT, True, 3), ExtensionOperandTypeInformation(SECRET, False, 3))
    assert device.get_supported_extensions() == (Extension(NAME, types),)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (shortened(key=b"abcd"), "operand 0 has 4 bytes, not [] elements of 3"),
        (shortened(short=9), f"operand 2 has type 9 of {NAME}, which the backend does not list"),
        (shortened(short=SECRET), "wrong operands"),
    ],
)
def test_types_that_the_plugin_cannot_be_shown(device: Device, model: Model, reason: str) -> None:
    placed = device.get_supported_operations(model)[1].operations
    assert placed[0].refusals[0].reason == reason


def test_bytes_of_another_backend_are_the_same_value(backend: Backend) -> None:
    types = backend._types  # type: ignore[attr-defined]
    (graph,) = graphs(shortened())
    raw = np.arange(15, dtype=np.uint8)
    seen = types.seen(graph, 2, raw)
    assert (seen.shape, seen.itemsize, seen.tobytes()) == ((5,), 3, raw.tobytes())
    assert types.seen(graph, 2, seen) is seen
    with pytest.raises(HalError, match=r"operand 2 has 14 bytes, not \[5\] elements of 3"):
        types.seen(graph, 2, raw[1:])


def test_an_element_of_no_bytes_is_refused(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWER", "impossible")
    with pytest.raises(LoadError, match=f"operand type 5 of {NAME} has 0 bytes; 1 to 65535 are possible"):
        load(file_candidate(plugin))


# ---- Optimising --------------------------------------------------------------------------------------------


def test_what_is_substituted_runs(
    device: Device, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plug-in's answer for operations 1 and 2 is 7, of which the others make -7."""
    monkeypatch.setenv("NEWER", "substitute")
    outcome = prepare(chain(4), device)
    hooks = [name for n in (1, 2, 3) for name in (f"before_load {n}", f"after_load {n}")]
    noted = [line for line in events() if not line.startswith("mode")]
    assert noted == ["compile 2", *hooks[:2], *hooks[2:3], "compile 1", *hooks[3:5], "compile 1", hooks[5]]
    assert execute(outcome, [floats(8)])[1][0].tolist() == [-7] * 8
    events()
    del outcome
    gc.collect()
    assert sorted(events()) == ["release 1", "release 1", "release 2"]


def test_what_fails_goes_to_others_with_the_reason(
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


def test_what_was_substituted_comes_from_the_cache(
    plugin: Path, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWER", "substitute")
    pair = Pair()
    devices = [Device("test", [load(file_candidate(plugin)).backend], cache_key=KEY) for _ in range(2)]
    try:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        devices[0].prepare_model(chain(4), outcomes.put, cache=pair.files())
        assert outcomes.get(timeout=60).cache.state == CacheState.SAVED
        assert [line for line in events() if line.startswith("save")] == ["save 0", "save 1", "save 0"]
        monkeypatch.setenv("NEWER", "fail_none")  # nobody asks
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
        ("substitute stranger", "substitutes a part that it did not ask for, or one twice", ["kept 0"]),
        ("substitute twice", "substitutes a part that it did not ask for, or one twice", ["release 2"]),
        ("substitute then_error", "on second thoughts", ["release 2"]),
    ],
)
def test_answers_that_make_no_sense_are_failures_to_compile(
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


def test_a_span_may_be_that_of_an_operation(device: Device) -> None:
    spans = profiled(prepare(chain(2), device), [floats(8)]).spans
    assert [(span.kind, span.name, span.operations) for span in spans if span.kind != SpanKind.PARTITION] == [
        (SpanKind.OPERATION, "the first", (0,)),
        (SpanKind.WORK, "none", ()),
        (SpanKind.OPERATION, "the first", (1,)),
        (SpanKind.WORK, "none", ()),
    ]


@pytest.mark.parametrize(("words", "lies"), [("", False), ("capable", True)])
def test_inputs_in_shared_memory_are_passed_as_they_lie(
    plugin: Path, events: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, words: str, lies: bool
) -> None:
    """A client could change them meanwhile; only a backend that says it copies them gets pointers to them."""
    monkeypatch.setenv("NEWER", words)
    descriptor = os.memfd_create("shared")
    os.truncate(descriptor, 4096)
    memory = np.frombuffer(mmap.mmap(descriptor, 4096), np.uint8)
    os.close(descriptor)
    memory[:32].view(np.float32)[:] = 3
    where = RequestArgument(False, DataLocation(0, 0, 32))
    request = Request((where,), (RequestArgument(False, DataLocation(1)),), (Memory(memory), ReturnedPool()))
    with device_of(load(file_candidate(plugin)).backend) as device:
        prepared = prepare(chain(1), device).prepared_model
        assert prepared is not None
        (returned,) = prepared.execute_synchronously(request).returned
    assert returned is not None and returned.view(np.float32).tolist() == [-3] * 8
    noted = events()
    assert ("lies in /memfd:shared" in noted) == lies
    assert not any(line.startswith("planned late") for line in noted)
