"""Hooks for networks: once for each prepared model, on every backend of the device, around all that its parts do."""

import gc
import logging
from contextlib import closing
from queue import SimpleQueue

import pytest

from nnhal.errors import general_failure
from nnhal.types import CacheState, ErrorStatus
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import CompiledSubgraph, CompileOptions, OptimizedSubgraph, SubgraphView
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.fake_backend import Fake, device_of, graph_of
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import KEY, Pair
from tests.driver.one_operation import prepare

PARTS = graph_of([(-1, -1), (0, 0), (1, 1)], [Op.ADD, Op.MUL, Op.ADD], (300, 300))
"""Model whose operations ADD, MUL, ADD are three partitions of two backends."""

LOADED = ["before_load_network", "after_load_network"]
UNLOADED = ["before_unload_network", "after_unload_network"]


class Recorder(Fake):
    """Backend that records the calls of its hooks, with the number of the network, in a list that backends share."""

    def __init__(self, id_: str, takes: list[int], events: list[tuple[str, str, int]]) -> None:
        super().__init__(id_, takes)
        self.events = events
        self.broken = ""

    def note(self, event: str, network: int) -> None:
        self.events.append((self.id, event, network))
        if event == self.broken:
            raise SystemExit("test failure")

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        self.note("optimize", options.network)
        return super().optimize(subgraph, options)

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        self.note("compile", options.network)
        return super().compile(subgraph, options)

    def after_unload(self, network: int) -> None:
        self.note("after_unload", 0)

    def before_load_network(self, network: int) -> None:
        self.note("before_load_network", network)

    def after_load_network(self, network: int) -> None:
        self.note("after_load_network", network)

    def before_unload_network(self, network: int) -> None:
        self.note("before_unload_network", network)

    def after_unload_network(self, network: int) -> None:
        self.note("after_unload_network", network)

    def close(self) -> None:
        self.note("close", 0)


def recorders() -> tuple[list[tuple[str, str, int]], list[Recorder]]:
    """Return the common events of three backends: one for ADD, one for MUL, and one that runs nothing."""
    events: list[tuple[str, str, int]] = []
    return events, [Recorder("Add", [Op.ADD], events), Recorder("Mul", [Op.MUL], events), Recorder("Idle", [], events)]


def test_every_backend_is_told_once_for_each_model() -> None:
    events, backends = recorders()
    with device_of(*backends) as device:
        outcome = prepare(PARTS, device)
        assert outcome.status == ErrorStatus.NONE, outcome.reason
        assert [partition.backend for partition in outcome.placement.partitions] == ["Add", "Mul", "Add"]
        number = events[0][2]
        assert {network for _, _, network in events} == {number}
        names = [backend.id for backend in backends]
        assert events[:3] == [(name, "before_load_network", number) for name in names]
        assert events[3:-3] == [(n, event, number) for n in ("Add", "Mul", "Add") for event in ("optimize", "compile")]
        assert events[-3:] == [(name, "after_load_network", number) for name in names]
        events.clear()
        second = prepare(PARTS, device)
        assert {network for _, _, network in events} == {number + 1}
        events.clear()
        del outcome
        gc.collect()
        assert events[:3] == [(name, "before_unload_network", number) for name in names]
        assert sorted(events[3:-3]) == [("Add", "after_unload", 0)] * 2 + [("Mul", "after_unload", 0)]
        assert events[-3:] == [(name, "after_unload_network", number) for name in names]
        del second


def test_network_that_fails_to_load_is_unloaded() -> None:
    events, backends = recorders()
    for backend in backends:
        backend.fails = general_failure("test failure")
    with device_of(*backends) as device:
        assert prepare(PARTS, device).status == ErrorStatus.GENERAL_FAILURE
        hooks = [event for name, event, _ in events if name == "Idle"]
        assert hooks == ["before_load_network", "after_unload_network"]


@pytest.mark.parametrize("hook", [*LOADED, *UNLOADED])
def test_hook_that_fails_stops_nothing(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "nnhal_driver")  # pytest keeps records, and their tracebacks keep the model
    events, backends = recorders()
    backends[0].broken = hook
    with device_of(*backends) as device:
        outcome = prepare(PARTS, device)
        assert outcome.status == ErrorStatus.NONE
        del outcome
        gc.collect()
        assert [event for name, event, _ in events if name == "Idle"] == [*LOADED, *UNLOADED]


def test_cached_model_is_a_network_too() -> None:
    events, backends = recorders()
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    with closing(Pair()) as pair, closing(Device("test", backends, DeviceOptions(cache=CacheOptions(KEY)))) as device:
        launch_preparation(device, PARTS, outcomes.put, cache=pair.files())
        assert outcomes.get(timeout=60).cache.state == CacheState.SAVED
        gc.collect()
        events.clear()
        device.prepare_model_from_cache(outcomes.put, pair.files())
        outcome = outcomes.get(timeout=60)
        assert outcome.cache.state == CacheState.HIT
        assert len({network for _, event, network in events if event.endswith("_network")}) == 1
        assert [event for name, event, _ in events if name == "Idle"] == LOADED


def test_backends_are_closed_after_the_last_network() -> None:
    events, backends = recorders()
    with device_of(*backends) as device:
        outcome = prepare(PARTS, device)
        events.clear()
    assert events == [], "the model is still there"
    del outcome
    gc.collect()
    closed = [(name, event) for name, event, _ in events][-4:]
    assert closed == [("Idle", "after_unload_network"), *((backend.id, "close") for backend in backends)]
    device.close()
    assert [event for _, event, _ in events].count("close") == 3
