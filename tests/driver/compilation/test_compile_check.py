"""`CompileOptions.check`: deadlines and cancellation reach backends while they optimize, compile and load."""

import queue
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, CacheState, ErrorStatus, PrepareModelConfig
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import (
    CompiledSubgraph,
    CompileOptions,
    OptimizedSubgraph,
    Output,
    Run,
    Sections,
    SubgraphView,
)
from nnhal_driver.backends.litert.backend import CpuAcc
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.graph import build_graphs, subgraph_view
from nnhal_driver.preparation.launch import DeviceCall
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import Deadline
from tests.driver.clock import MS, FakeClock
from tests.driver.fake_backend import Fake, chain, device_of
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import Pair
from tests.driver.model_cache.preparation import save

HOUR = 3600 * 1000 * MS
MODEL = chain(*[Op.ADD] * 4)


class Slow(Fake):
    """Backend with a method that takes an hour.

    Args:
        step: what it does after the hour.
        slow: the method.
    """

    def __init__(self, clock: FakeClock, slow: str, step: Callable[[CompileOptions], None]) -> None:
        super().__init__("Slow")
        self._clock, self._slow, self._finish = clock, slow, step

    def _work(self, method: str, options: CompileOptions) -> None:
        options.check()
        if method == self._slow:
            self._clock.advance(HOUR)
            self._finish(options)

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        self._work("optimize", options)
        return OptimizedSubgraph()

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        self._work("compile", options)
        return _Saveable(super().compile(subgraph, options))

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        self._work("load", options)
        return _Saveable(super().compile(subgraph, options))


class _Saveable(CompiledSubgraph):
    def __init__(self, compiled: CompiledSubgraph) -> None:
        self._compiled = compiled

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self._compiled.execute(inputs, outputs, run)

    def save(self) -> Sections:
        return Sections(b"program")


def check(options: CompileOptions) -> None:
    options.check()
    raise AssertionError("the check raises nothing")


def fail_after_check(options: CompileOptions) -> None:
    try:
        options.check()
    except HalError:
        raise general_failure("stopped") from None


def go_on(options: CompileOptions) -> None:
    """Ignore the deadline."""


def outcome_of(launch: Callable[[Callable[[Outcome], None]], object]) -> Outcome:
    """Return the outcome of a preparation."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    launch(outcomes.put)
    return outcomes.get(timeout=60)


@pytest.mark.parametrize("slow", ["optimize", "compile"])
@pytest.mark.parametrize("step", [check, fail_after_check, go_on])
def test_late_compilation_is_a_missed_deadline(
    clock: FakeClock, slow: str, step: Callable[[CompileOptions], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other backend is tried, whatever the backend makes of the error."""
    other = Fake("Other")
    with device_of(Slow(clock, slow, step), other) as device:
        monkeypatch.setattr(device._scheduler.timers, "call_at", lambda at_ns, call: _NoTimer())
        config = PrepareModelConfig(deadline_ns=clock.now_ns + HOUR)
        outcome = outcome_of(lambda callback: launch_preparation(device, MODEL, callback, config))
        monkeypatch.undo()
    assert (outcome.status, outcome.prepared_model) == (ErrorStatus.MISSED_DEADLINE_PERSISTENT, None)
    assert outcome.reason == "the deadline passed during the preparation"
    assert other.compiled == []


class _NoTimer:
    """Timer that never fires, so that only checks end a preparation."""

    def cancel(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("step", [check, go_on])
def test_late_load_is_a_missed_deadline(
    clock: FakeClock, step: Callable[[CompileOptions], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Pair()) as pair, device_of(Slow(clock, "load", step)) as device:
        assert save(device, MODEL, pair.files()).cache.state == CacheState.SAVED
        monkeypatch.setattr(device._scheduler.timers, "call_at", lambda at_ns, call: _NoTimer())
        deadline_ns = clock.now_ns + HOUR
        outcome = outcome_of(
            lambda callback: device.prepare_model_from_cache(callback, pair.files(), DeviceCall(Deadline(deadline_ns)))
        )
        monkeypatch.undo()
    assert (outcome.status, outcome.prepared_model) == (ErrorStatus.MISSED_DEADLINE_PERSISTENT, None)


def test_cancelled_compilation_is_not_tried_on_another_backend(clock: FakeClock) -> None:
    cancellations: queue.SimpleQueue[Cancellation] = queue.SimpleQueue()
    seen: list[HalError] = []

    def cancel_and_check(options: CompileOptions) -> None:
        cancellations.get(timeout=60).cancel()
        with pytest.raises(HalError) as caught:
            options.check()
        seen.append(caught.value)
        raise caught.value

    other = Fake("Other")
    outcomes: list[Outcome] = []
    with device_of(Slow(clock, "compile", cancel_and_check), other) as device:
        cancellations.put(launch_preparation(device, MODEL, outcomes.append))
    assert [outcome.reason for outcome in outcomes] == ["cancelled by the client"]
    assert [error.reason for error in seen] == ["cancelled by the client"]
    assert other.compiled == []


def test_options_that_a_backend_keeps_never_raise_later(clock: FakeClock) -> None:
    kept: list[CompileOptions] = []
    with device_of(Slow(clock, "compile", kept.append)) as device:
        config = PrepareModelConfig(deadline_ns=clock.now_ns + 2 * HOUR)
        assert (
            outcome_of(lambda callback: launch_preparation(device, MODEL, callback, config)).status == ErrorStatus.NONE
        )
    clock.advance(HOUR)
    kept[0].check()


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
def test_built_in_backends_check_between_operations(backend: str) -> None:
    if backend == "CpuAcc":
        pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    (graph,) = build_graphs(MODEL)
    view = subgraph_view(graph, range(4), relaxed=False)
    calls: list[int] = []

    def stop_at_the_fourth() -> None:
        calls.append(len(calls))
        if len(calls) == 4:
            raise general_failure("stop")

    built_in = CpuAcc() if backend == "CpuAcc" else CpuRef()
    with pytest.raises(HalError, match="stop"):
        built_in.compile(view, CompileOptions(0, check=stop_at_the_fourth))
