"""Workload factories with planned memory: the host asks for a memory manager, and acquires it around executions."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import numpy as np
import pytest

from nnhal.types import AnyArray, CacheState, ErrorStatus, ExecutionPreference, Model, PrepareModelConfig
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import CompileOptions, OperationView, Support
from nnhal_driver.backends.memory import MemoryManager, MemoryMode, Storage, allocate_aligned
from nnhal_driver.backends.per_operation import PerOperationBackend, Workload, WorkloadFactory
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.fake_backend import graph_of
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import KEY, Pair
from tests.driver.one_operation import execute, prepare

X = np.array([2, 3], np.float32)
MODEL = graph_of([(-1, -1), (0, -1), (1, -1)], [Op.MAXIMUM, Op.MINIMUM, Op.MAXIMUM])
"""max(min(max(x, x), x), x): x."""


class Scratch(PerOperationBackend):
    """Backend whose workloads write through scratch memory.

    Attributes:
        events: calls of the host and of the workloads, in order.
        managers: the memory managers that it created.
    """

    id = "Scratch"
    version = "1"

    def __init__(self, answer: object = True) -> None:
        self.answer = answer
        self.events: list[str] = []
        self.managers: list[Recording] = []

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.type in (Op.MAXIMUM, Op.MINIMUM) else Support("no")

    def workload(self, operation: OperationView) -> Workload:
        return _function(operation)

    def create_memory_manager(self, options: CompileOptions) -> MemoryManager | None:
        if self.answer is not True:
            return self.answer  # type: ignore[return-value]
        self.events.append("create_memory_manager")
        self.managers.append(Recording(options.memory_mode, self.events))
        return self.managers[-1]

    def create_workload_factory(self, memory: MemoryManager | None) -> WorkloadFactory:
        self.events.append("create_workload_factory")
        if memory is None:
            return self.workload
        assert memory is self.managers[-1]

        def create(operation: OperationView) -> Workload:
            self.events.append(operation.name)
            piece = memory.get(X.nbytes, Storage.DYNAMIC)
            memory.put(piece)
            function = _function(operation)

            def run(call: OperationCall) -> AnyArray:
                scratch = memory.bytes(piece).view(np.float32)
                scratch[:] = function(call)
                return scratch.copy()

            return run

        return create


class Recording(MemoryManager):
    """Manager that records when the host acquires and releases it."""

    def __init__(self, mode: MemoryMode, events: list[str]) -> None:
        super().__init__(mode, allocate_aligned)
        self.events, self.mode = events, mode

    def acquire(self) -> None:
        self.events.append("acquire")
        super().acquire()

    def release(self) -> None:
        self.events.append("release")
        super().release()


def _function(operation: OperationView) -> Workload:
    function = np.maximum if operation.type == Op.MAXIMUM else np.minimum

    def run(call: OperationCall) -> AnyArray:
        result: AnyArray = function(call.array("input0"), call.array("input1"))
        return result

    return run


@contextmanager
def device_of(backend: Scratch) -> Iterator[Device]:
    device = Device("test", [backend], DeviceOptions(cache=CacheOptions(KEY)))
    yield device
    device.close()


def test_factory_gets_the_manager_that_the_host_asked_for() -> None:
    backend = Scratch()
    with device_of(backend) as device:
        outcome = prepare(MODEL, device)
        names = [view.name for view in outcome.prepared_model.plan.nodes[0].view.operations]  # type: ignore[union-attr]
        assert backend.events == ["create_memory_manager", "create_workload_factory", *names]
        backend.events.clear()
        for _ in range(2):
            np.testing.assert_array_equal(execute(outcome, [X])[1][0], X)
        assert backend.events == ["acquire", "release"] * 2
        (manager,) = backend.managers
        assert manager.peak_bytes == 64 < manager.sum_bytes == 3 * 64, "the workloads share their scratch memory"


@pytest.mark.parametrize(
    ("preference", "mode"),
    [
        (ExecutionPreference.LOW_POWER, MemoryMode.LIMIT),
        (ExecutionPreference.FAST_SINGLE_ANSWER, MemoryMode.NORMAL),
    ],
)
def test_manager_has_the_mode_of_the_preparation(preference: ExecutionPreference, mode: MemoryMode) -> None:
    backend = Scratch()
    with device_of(backend) as device:
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        launch_preparation(device, MODEL, outcomes.put, PrepareModelConfig(preference=preference))
        outcome = outcomes.get(timeout=60)
        execute(outcome, [X])
        assert backend.managers[0].mode is mode
        assert backend.managers[0].is_held == (mode is MemoryMode.NORMAL)


def test_each_subgraph_has_a_manager_also_from_the_cache() -> None:
    backend, pair = Scratch(), Pair()
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    with device_of(backend) as device:
        launch_preparation(device, MODEL, outcomes.put, cache=pair.files())
        assert outcomes.get(timeout=60).cache.state == CacheState.SAVED
        device.prepare_model_from_cache(outcomes.put, pair.files())
        loaded = outcomes.get(timeout=60)
        assert loaded.cache.state == CacheState.HIT
        assert len(backend.managers) == 2
        np.testing.assert_array_equal(execute(loaded, [X])[1][0], X)
        assert backend.managers[1].is_held and not backend.managers[0].is_held
    pair.close()


def _run(backend: Scratch, model: Model) -> tuple[Outcome, list[str]]:
    with device_of(backend) as device:
        outcome = prepare(model, device)
        if outcome.status == ErrorStatus.NONE:
            np.testing.assert_array_equal(execute(outcome, [X])[1][0], X)
    return outcome, backend.events


def test_backend_without_a_manager_plans_nothing() -> None:
    outcome, events = _run(Scratch(None), MODEL)
    assert outcome.status == ErrorStatus.NONE
    assert events == ["create_workload_factory"]


def test_answer_that_is_no_manager_fails_the_subgraph() -> None:
    outcome, _ = _run(Scratch("memory"), MODEL)
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "expected a MemoryManager or None" in outcome.reason
