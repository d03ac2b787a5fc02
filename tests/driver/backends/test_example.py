"""The Python example against CpuRef: planned memory, layout, substitution and hooks."""

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal_driver.backends.layout
from nnhal.builder import ModelBuilder
from nnhal.types import AnyArray, Model, Operand, SpanKind
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import load
from nnhal_driver.device import Device
from nnhal_driver.graph import build_graphs, subgraph_view
from tests.driver.control_flow_models import choose, doubles
from tests.driver.fake_backend import Fake, parts
from tests.driver.one_operation import execute, execute_profiled, prepare

FILE = Path(__file__).parents[3] / "examples" / "backends" / "Example_Arena_backend.py"
SHAPE = (1, 40, 40, 6)
X = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)


def model_of(*types: Op, shape: tuple[int, ...] = SHAPE) -> Model:
    """Return a chain of operations: x op x, (x op x) op x, and so on."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, shape, name="x")
    value = x
    for type_ in types:
        output = Operand(T.TENSOR_FLOAT32, shape)
        arguments = [value] if type_ == Op.RELU else [value, x] if type_ == Op.MAXIMUM else [value, x, 0]
        value = b.add(type_, *arguments, output=output)
    b.output(value, name="y")
    return b.build()


LONG = model_of(Op.ADD, Op.SUB, Op.MUL, Op.MAXIMUM, Op.SUB, Op.MUL)


@pytest.fixture
def backend() -> Backend:
    return load(file_candidate(FILE)).backend


@pytest.fixture
def device(backend: Backend) -> Iterator[Device]:
    device = Device("test", [backend])
    yield device
    device.close()


@pytest.mark.parametrize("model", [LONG, model_of(Op.ADD, Op.RELU), model_of(Op.SUB, Op.ADD, Op.RELU, Op.MUL)])
def test_results_equal_those_of_cpu_ref(device: Device, model: Model) -> None:
    outcome = prepare(model, device)
    (expected,) = execute(prepare(model), [X])[1]
    for _ in range(2):
        np.testing.assert_array_equal(execute(outcome, [X])[1][0], expected)


def test_addition_with_two_readers_is_not_fused(device: Device) -> None:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, SHAPE)
    output = Operand(T.TENSOR_FLOAT32, SHAPE)
    total = b.add(Op.ADD, x, x, 0, output=output)
    b.output(b.add(Op.SUB, b.add(Op.RELU, total, output=output), total, 0, output=output))
    model = b.build()
    np.testing.assert_array_equal(execute(prepare(model, device), [X])[1][0], execute(prepare(model), [X])[1][0])


def test_substitution_is_one_step(device: Device) -> None:
    spans = execute_profiled(prepare(model_of(Op.SUB, Op.ADD, Op.RELU, Op.MUL), device), [X]).spans
    assert [span.name for span in spans if span.kind == SpanKind.OPERATION] == ["SUB", "ADD", "MUL"]


def test_chain_needs_two_pieces(backend: Backend) -> None:
    """The chain has six results of 40 x 40 x 8 floats. Two of them are in use at a time."""
    (graph,) = build_graphs(LONG)
    compiled = backend.compile(subgraph_view(graph, range(6), False), CompileOptions(0))
    assert compiled.memory is not None
    piece_bytes = 40 * 40 * 8 * 4
    assert (compiled.memory.peak_bytes, compiled.memory.sum_bytes) == (2 * piece_bytes, 6 * piece_bytes)


def test_load_and_unload_hooks_track_networks(backend: Backend, device: Device) -> None:
    outcome = prepare(LONG, device)
    assert len(backend.loaded) == 1  # type: ignore[attr-defined]
    del outcome
    gc.collect()
    assert not backend.loaded  # type: ignore[attr-defined]


def test_partitions_with_the_same_layout_need_no_conversion(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB, the substitution of ADD and RELU, and MUL: only x and y are converted, once each."""
    converted: list[str] = []
    original = nnhal_driver.backends.layout.convert

    def convert(array: AnyArray, source: object, target: object, channels: int = 0) -> AnyArray:
        converted.append(target.name)  # type: ignore[attr-defined]
        return original(array, source, target, channels)  # type: ignore[arg-type]

    device = Device("test", [backend, Fake("B")])
    try:
        monkeypatch.setattr(nnhal_driver.backends.layout, "convert", convert)
        outcome = prepare(model_of(Op.SUB, Op.ADD, Op.RELU, Op.MUL), device)
        assert parts(outcome.placement) == [("ExampleArena", (0, 1, 2, 3))]
        execute(outcome, [X])
        assert converted == ["NC4HW4", "NHWC"]
        converted.clear()
        large = model_of(Op.SUB, Op.DIV, Op.MUL, shape=(1, 400, 400, 6))
        outcome = prepare(large, device)
        assert parts(outcome.placement) == [("ExampleArena", (0,)), ("B", (1,)), ("ExampleArena", (2,))]
        x = np.ones((1, 400, 400, 6), np.float32)
        (result,) = execute(outcome, [x])[1]
        np.testing.assert_array_equal(result, np.zeros_like(x))
        assert converted == ["NC4HW4", "NHWC", "NC4HW4", "NHWC"]
    finally:
        device.close()


def test_results_of_branches_leave_the_layout(device: Device) -> None:
    outcome = prepare(choose(doubles(SHAPE), doubles(SHAPE), SHAPE), device)
    assert [(p.backend, p.subgraph) for p in outcome.placement.partitions if p.subgraph] == [
        ("ExampleArena", 1),
        ("ExampleArena", 2),
    ]
    (result,) = execute(outcome, [np.array([True]), X])[1]
    np.testing.assert_array_equal(result, X + X)
