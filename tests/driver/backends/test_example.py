"""The Python example: its arena, its layout, its substitution and its hooks, against CpuRef."""

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import driver.backends.layout
from driver.backends.api import Backend, CompileOptions
from driver.backends.discovery import file_candidate
from driver.backends.loading import load
from driver.device import Device
from driver.graph import graphs, subgraph_view
from nnhal.builder import ModelBuilder
from nnhal.types import AnyArray, Model, Operand, SpanKind
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import execute, prepare
from tests.driver.test_placement import Fake, parts
from tests.driver.test_profiling import profiled

FILE = Path(__file__).parents[3] / "driver" / "backends" / "example" / "Example_Arena_backend.py"
SHAPE = (1, 40, 40, 6)
X = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)


def model_of(*types: Op, shape: tuple[int, ...] = SHAPE) -> Model:
    """x -> x op x -> (x op x) op x and so on."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, shape, name="x")
    value = x
    for type_ in types:
        image = Operand(T.TENSOR_FLOAT32, shape)
        arguments = [value] if type_ == Op.RELU else [value, x] if type_ == Op.MAXIMUM else [value, x, 0]
        value = b.add(type_, *arguments, output=image)
    b.output(value, name="y")
    return b.build()


LONG = model_of(Op.ADD, Op.SUB, Op.MUL, Op.MAXIMUM, Op.SUB, Op.MUL)


@pytest.fixture
def backend() -> Backend:
    return load(file_candidate(FILE)).backend


@pytest.fixture
def device(backend: Backend) -> Iterator[Device]:
    made = Device("test", [backend])
    yield made
    made.close()


@pytest.mark.parametrize("model", [LONG, model_of(Op.ADD, Op.RELU), model_of(Op.SUB, Op.ADD, Op.RELU, Op.MUL)])
def test_it_computes_what_the_reference_does(device: Device, model: Model) -> None:
    outcome = prepare(model, device)
    (expected,) = execute(prepare(model), [X])[1]
    for _ in range(2):
        np.testing.assert_array_equal(execute(outcome, [X])[1][0], expected)


def test_an_addition_that_is_read_twice_is_not_replaced(device: Device) -> None:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, SHAPE)
    image = Operand(T.TENSOR_FLOAT32, SHAPE)
    total = b.add(Op.ADD, x, x, 0, output=image)
    b.output(b.add(Op.SUB, b.add(Op.RELU, total, output=image), total, 0, output=image))
    model = b.build()
    np.testing.assert_array_equal(execute(prepare(model, device), [X])[1][0], execute(prepare(model), [X])[1][0])


def test_a_substitution_is_one_step(device: Device) -> None:
    spans = profiled(prepare(model_of(Op.SUB, Op.ADD, Op.RELU, Op.MUL), device), [X]).spans
    assert [span.name for span in spans if span.kind == SpanKind.OPERATION] == ["SUB", "ADD", "MUL"]


def test_a_chain_needs_two_pieces(backend: Backend) -> None:
    """Six results of 40 x 40 x 8 floats, of which two are needed at a time."""
    (graph,) = graphs(LONG)
    compiled = backend.compile(subgraph_view(graph, range(6), False), CompileOptions(0))
    assert compiled.memory is not None
    one = 40 * 40 * 8 * 4
    assert (compiled.memory.peak_bytes, compiled.memory.sum_bytes) == (2 * one, 6 * one)


def test_networks_are_counted(backend: Backend, device: Device) -> None:
    outcome = prepare(LONG, device)
    assert len(backend.loaded) == 1  # type: ignore[attr-defined]
    del outcome
    gc.collect()
    assert not backend.loaded  # type: ignore[attr-defined]


def test_nothing_is_converted_between_parts_in_one_layout(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB, then ADD with RELU as a substitution, then MUL: x comes in once, y goes out once."""
    converted: list[str] = []
    plain = driver.backends.layout.convert

    def convert(array: AnyArray, source: object, target: object, channels: int = 0) -> AnyArray:
        converted.append(target.name)  # type: ignore[attr-defined]
        return plain(array, source, target, channels)  # type: ignore[arg-type]

    made = Device("test", [backend, Fake("B")])
    try:
        monkeypatch.setattr(driver.backends.layout, "convert", convert)
        outcome = prepare(model_of(Op.SUB, Op.ADD, Op.RELU, Op.MUL), made)
        assert parts(outcome.placement) == [("ExampleArena", (0, 1, 2, 3))]
        execute(outcome, [X])
        assert converted == ["NC4HW4", "NHWC"]
        converted.clear()
        large = model_of(Op.SUB, Op.DIV, Op.MUL, shape=(1, 400, 400, 6))
        outcome = prepare(large, made)
        assert parts(outcome.placement) == [("ExampleArena", (0,)), ("B", (1,)), ("ExampleArena", (2,))]
        x = np.ones((1, 400, 400, 6), np.float32)
        (made_by_both,) = execute(outcome, [x])[1]
        np.testing.assert_array_equal(made_by_both, np.zeros_like(x))
        assert converted == ["NC4HW4", "NHWC", "NC4HW4", "NHWC"]
    finally:
        made.close()
