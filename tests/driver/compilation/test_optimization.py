"""Backends that optimize a subgraph: substitutions, failed operations, and invalid answers."""

import queue
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from nnhal.types import AnyArray, CacheState, ErrorStatus, Model
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OptimizedSubgraph,
    Output,
    Sections,
    SubgraphView,
    Substitution,
)
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.fake_backend import LARGE, SMALL, Fake, device_of, graph_of, parts
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import KEY, Pair
from tests.driver.one_operation import execute, prepare

CHAIN = graph_of([(-1, -1), (0, 0), (1, -1), (2, 1)], [Op.ADD, Op.MUL, Op.SUB, Op.ADD], LARGE)
X = np.random.default_rng(0).random(LARGE, np.float32)


class Optimizer(Fake):
    """Backend with a given answer. `built` lists the subgraphs compiled for substitutions, `compiled` the others."""

    def __init__(self, answer: Callable[["Optimizer", SubgraphView], OptimizedSubgraph]) -> None:
        super().__init__("A")
        self.answer = answer
        self.optimized: list[tuple[int, ...]] = []
        self.built: list[tuple[int, ...]] = []

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        self.optimized.append(tuple(view.index for view in subgraph.operations))
        return self.answer(self, subgraph)

    def substitution(self, subgraph: SubgraphView, operations: Sequence[int]) -> Substitution:
        self.built.append(tuple(operations))
        return Substitution(tuple(operations), super(Fake, self).compile(subgraph.part(operations), CompileOptions(0)))


def substitute(*operations: Sequence[int]) -> Callable[[Optimizer, SubgraphView], OptimizedSubgraph]:
    def answer(backend: Optimizer, subgraph: SubgraphView) -> OptimizedSubgraph:
        return OptimizedSubgraph(tuple(backend.substitution(subgraph, unit) for unit in operations))

    return answer


def run(model: Model, device: Device, x: AnyArray = X) -> AnyArray:
    return execute(prepare(model, device), [x])[1][0]


def expected(model: Model, x: AnyArray = X) -> AnyArray:
    with device_of(Fake("B")) as device:
        return run(model, device, x)


def test_substitution_replaces_its_operations() -> None:
    backend = Optimizer(substitute((1, 2)))
    with device_of(backend) as device:
        np.testing.assert_array_equal(run(CHAIN, device), expected(CHAIN))
    assert backend.built == [(1, 2)]
    assert backend.compiled == [(0,), (3,)]


def test_substitution_is_executed() -> None:
    class Constant(CompiledSubgraph):
        def execute(self, inputs: object, outputs: Sequence[object], run: object) -> None:
            outputs[0].write(np.full(LARGE, 7, np.float32))  # type: ignore[attr-defined]

    with device_of(Optimizer(lambda *_: OptimizedSubgraph((Substitution((0, 1, 2, 3), Constant()),)))) as device:
        assert (run(CHAIN, device) == 7).all()


def test_nothing_is_substituted_by_default() -> None:
    backend = Fake("A")
    with device_of(backend) as device:
        run(CHAIN, device)
    assert backend.compiled == [(0, 1, 2, 3)]


def test_failed_operations_go_to_the_next_backend_and_the_rest_is_optimized_again() -> None:
    def answer(backend: Optimizer, subgraph: SubgraphView) -> OptimizedSubgraph:
        indexes = {view.index for view in subgraph.operations}
        return OptimizedSubgraph(failed={1: "no room"} if 1 in indexes else {})

    backend, other = Optimizer(answer), Fake("B")
    with device_of(backend, other) as device:
        outcome = prepare(CHAIN, device)
        assert parts(outcome.placement) == [("A", (0,)), ("B", (1,)), ("A", (2, 3))]
        assert outcome.placement.operations[1].refusals[0].reason == "no room"
        np.testing.assert_array_equal(execute(outcome, [X])[1][0], expected(CHAIN))
    assert backend.optimized == [(0, 1, 2, 3), (0,), (2, 3)]


@pytest.mark.parametrize("operations", [(9,), (), (1, 1)])
def test_invalid_answer_is_a_failure_to_compile(operations: tuple[int, ...]) -> None:
    def answer(backend: Optimizer, subgraph: SubgraphView) -> OptimizedSubgraph:
        good = backend.substitution(subgraph, (0,))
        return OptimizedSubgraph((Substitution(operations, good.compiled),))

    with device_of(Optimizer(answer), Fake("B")) as device:
        outcome = prepare(CHAIN, device)
    assert parts(outcome.placement) == [("B", (0, 1, 2, 3))]
    assert "must name operations of the subgraph, each once" in outcome.placement.operations[0].refusals[0].reason


def test_operations_that_cannot_run_as_a_unit_are_rejected() -> None:
    with device_of(Optimizer(substitute((0, 2))), Fake("B")) as device:
        outcome = prepare(CHAIN, device)
    assert parts(outcome.placement) == [("B", (0, 1, 2, 3))]
    reason = outcome.placement.operations[0].refusals[0].reason
    assert "operations [0, 2] cannot be substituted as a unit" in reason


def test_optimize_that_raises_is_a_failure_to_compile() -> None:
    def answer(*_: object) -> OptimizedSubgraph:
        raise ZeroDivisionError("oops")

    with device_of(Optimizer(answer)) as device:
        outcome = prepare(CHAIN, device)
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "ZeroDivisionError: oops" in outcome.reason


@pytest.mark.parametrize("seed", range(30))
def test_random_substitutions_compute_the_same(seed: int) -> None:
    """Each unit is a range in the model's order, and so convex."""
    rng = random.Random(seed)
    count = rng.randrange(2, 12)
    sources = [(rng.randrange(-1, i), rng.randrange(-1, i)) for i in range(count)]
    model = graph_of(sources, [rng.choice([Op.ADD, Op.SUB, Op.MAXIMUM]) for _ in range(count)], SMALL)
    cuts = sorted(rng.sample(range(count + 1), rng.randrange(2, min(5, count + 2))))
    ranges = [range(a, b) for a, b in pairwise(cuts) if rng.random() < 0.7]
    backend = Optimizer(substitute(*ranges))
    x = np.array([0.5, -3], np.float32)
    with device_of(backend) as device, device_of(Fake("B")) as plain:
        actual, reference = (execute(prepare(model, d), [x])[1] for d in (device, plain))
    for output, exact in zip(actual, reference, strict=True):
        np.testing.assert_array_equal(output, exact)
    assert sorted(i for unit in (*backend.built, *backend.compiled) for i in unit) == list(range(count))


def test_long_graph_with_many_substitutions_takes_linear_time() -> None:
    """The graph has 4,000 operations, and half of them are substituted. Quadratic work would time out."""
    count = 4000
    model = graph_of([(i - 1, i - 1) for i in range(count)], [Op.MAXIMUM] * count, SMALL)
    backend = Optimizer(substitute(*[(i,) for i in range(0, count, 2)]))
    with device_of(backend) as device:
        assert prepare(model, device).status == ErrorStatus.NONE
    assert len(backend.compiled) == count // 2


def test_unchanged_operations_are_compiled_in_few_parts() -> None:
    model = graph_of([(-1, -1), (-1, -1), (0, 0), (1, 1), (2, 3)], [Op.ADD, Op.SUB, Op.MUL, Op.ADD, Op.ADD], SMALL)
    backend = Optimizer(substitute((1,), (3,)))
    with device_of(backend) as device:
        assert prepare(model, device).status == ErrorStatus.NONE
    assert backend.compiled == [(0, 2), (4,)]


class Sevens(CompiledSubgraph):
    """Compiled subgraph that outputs 7, and can be saved."""

    def execute(self, inputs: object, outputs: Sequence[Output], run: object) -> None:
        for output in outputs:
            output.write(np.full(LARGE, 7, np.float32))

    def save(self) -> Sections:
        return Sections(b"sevens", (np.full(3, 7, np.float32),))


class Saver(Optimizer):
    """Backend that substitutes two operations by sevens. `loaded` lists what came from the cache."""

    def __init__(self) -> None:
        super().__init__(lambda *_: OptimizedSubgraph((Substitution((1, 2), Sevens()),)))
        self.loaded: list[tuple[tuple[int, ...], bytes]] = []

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        self.loaded.append((tuple(view.index for view in subgraph.operations), sections.model))
        assert sections.data[0].tolist() == [7, 7, 7]
        return Sevens()


def test_warm_start_loads_substitutions() -> None:
    """Unchanged parts saved nothing and are compiled again. The backend is not asked to optimize."""
    first, second = Saver(), Saver()
    fresh, loaded = prepare_and_load(first, second)
    assert (first.optimized, first.compiled) == ([(0, 1, 2, 3)], [(0,), (3,)])
    assert (second.optimized, second.compiled, second.loaded) == ([], [(0,), (3,)], [((1, 2), b"sevens")])
    np.testing.assert_array_equal(loaded, fresh)
    assert not np.array_equal(fresh, expected(CHAIN)), "the substitution was executed"


def test_warm_start_optimizes_again_what_was_not_saved() -> None:
    backends = [Optimizer(substitute((1, 2))) for _ in range(2)]
    _, loaded = prepare_and_load(*backends)
    np.testing.assert_array_equal(loaded, expected(CHAIN))
    assert backends[1].built == [(1, 2)]


def prepare_and_load(*backends: Backend) -> tuple[AnyArray, AnyArray]:
    """Return the output of the chain prepared on the first backend, and loaded from the cache on the second."""
    pair = Pair()
    devices = [Device("test", [backend], DeviceOptions(cache=CacheOptions(KEY))) for backend in backends]
    try:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        launch_preparation(devices[0], CHAIN, outcomes.put, cache=pair.files())
        fresh = outcomes.get(timeout=60)
        assert fresh.cache.state == CacheState.SAVED
        devices[1].prepare_model_from_cache(outcomes.put, pair.files())
        loaded = outcomes.get(timeout=60)
        assert loaded.cache.state == CacheState.HIT
        return execute(fresh, [X])[1][0], execute(loaded, [X])[1][0]
    finally:
        for device in devices:
            device.close()
        pair.close()
