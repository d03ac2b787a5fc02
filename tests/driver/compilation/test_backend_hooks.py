"""Hooks of backends: their order, also after failures, and memory around executions."""

import gc
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorStatus, ExecutionPreference, PrepareModelConfig
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)
from nnhal_driver.backends.memory import MemoryManager, MemoryMode, Piece, Storage
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.fake_backend import device_of
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import execute, model_of, prepare, tensor

X = tensor(T.TENSOR_FLOAT32, (0,))
MODEL = model_of(Op.RELU, [(X, 0)], [X], constants=False)
EXECUTION = ["execute_begin", "execute", "wait_finish", "execute_end"]


class RecordingSubgraph(CompiledSubgraph):
    """Compiled subgraph that copies its input, records the calls, and fails in the hooks in `fails`."""

    def __init__(self, events: list[str], fails: set[str]) -> None:
        self.events, self.fails = events, fails

    def record(self, name: str) -> None:
        self.events.append(name)
        if name in self.fails:
            raise general_failure(f"{name} fails")

    def resize_begin(self) -> None:
        self.record("resize_begin")

    def resize(self, shapes: Sequence[tuple[int, ...] | None]) -> None:
        self.record(f"resize {shapes[0]}")

    def resize_end(self) -> None:
        self.record("resize_end")

    def execute_begin(self) -> None:
        self.record("execute_begin")

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self.record("execute")
        assert inputs[0] is not None
        outputs[0].write(inputs[0])

    def wait_finish(self) -> None:
        self.record("wait_finish")

    def execute_end(self) -> None:
        self.record("execute_end")


class RecordingBackend(Backend):
    """Backend that records the calls of its hooks, and fails in those in `fails`."""

    id = "A"
    version = "1"

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fails: set[str] = set()

    def supports(self, operation: OperationView) -> Support:
        return Support()

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        self.record("compile")
        return RecordingSubgraph(self.events, self.fails)

    def record(self, name: str) -> None:
        self.events.append(name)
        if name in self.fails:
            raise general_failure(f"{name} fails")

    def before_load(self, network: int) -> None:
        self.record("before_load")

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        assert isinstance(compiled, RecordingSubgraph)
        self.record("after_load")

    def before_unload(self, network: int, compiled: CompiledSubgraph) -> None:
        assert isinstance(compiled, RecordingSubgraph)
        self.record("before_unload")

    def after_unload(self, network: int) -> None:
        self.record("after_unload")


def f(*values: float) -> AnyArray:
    return np.array(values, np.float32)


def test_hooks_are_called_in_order() -> None:
    backend = RecordingBackend()
    with device_of(backend) as device:
        outcome = prepare(MODEL, device)
        assert backend.events == ["before_load", "compile", "after_load"]
        backend.events.clear()
        for values in (f(1), f(2), f(1, 2)):
            assert execute(outcome, [values])[1][0].tolist() == values.tolist()
        first, second = (["resize_begin", f"resize ({n},)", "resize_end"] for n in (1, 2))
        assert backend.events == [*first, *EXECUTION, *EXECUTION, *second, *EXECUTION]
        backend.events.clear()
        del outcome
        gc.collect()
        assert backend.events == ["before_unload", "after_unload"]


@pytest.mark.parametrize(
    ("fails", "called"),
    [
        ("resize_begin", ["resize_begin"]),
        ("resize (1,)", ["resize_begin", "resize (1,)", "resize_end"]),
        ("execute_begin", ["execute_begin"]),
        ("execute", ["execute_begin", "execute", "execute_end"]),
        ("wait_finish", EXECUTION),
        ("execute_end", EXECUTION),
    ],
)
def test_failed_execution_calls_the_closing_hooks(fails: str, called: list[str]) -> None:
    backend = RecordingBackend()
    with device_of(backend) as device:
        outcome = prepare(MODEL, device)
        backend.fails.add(fails)
        backend.events.clear()
        with pytest.raises(HalError) as error:
            execute(outcome, [f(1)])
        assert error.value.reason == f"{fails} fails"
        resized = [] if fails.startswith("resize") else ["resize_begin", "resize (1,)", "resize_end"]
        assert backend.events == [*resized, *called]
        del error
        backend.fails.clear()
        backend.events.clear()
        execute(outcome, [f(1)])
        assert ("resize_begin" in backend.events) == fails.startswith("resize"), "a resize that failed is repeated"


@pytest.mark.parametrize(
    ("fails", "called"),
    [
        ("before_load", ["before_load"]),
        ("compile", ["before_load", "compile", "after_unload"]),
        ("after_load", ["before_load", "compile", "after_load", "before_unload", "after_unload"]),
    ],
)
def test_failed_load_is_unloaded(fails: str, called: list[str]) -> None:
    backend = RecordingBackend()
    backend.fails.add(fails)
    with device_of(backend) as device:
        outcome = prepare(MODEL, device)
        assert outcome.status == ErrorStatus.GENERAL_FAILURE
        assert f"{fails} fails" in outcome.reason
        assert backend.events == called


def test_hook_that_fails_does_not_stop_the_next() -> None:
    backend = RecordingBackend()
    backend.fails.add("before_unload")
    with device_of(backend) as device:
        prepare(MODEL, device)
        gc.collect()
        assert backend.events[-2:] == ["before_unload", "after_unload"]


class MemoryBackend(RecordingBackend):
    """Backend whose subgraphs copy their input through planned memory, and count concurrent executions."""

    def __init__(self) -> None:
        super().__init__()
        self.subgraphs: list[MemorySubgraph] = []

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        self.subgraphs.append(MemorySubgraph(options.memory_mode))
        return self.subgraphs[-1]

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        return

    def before_unload(self, network: int, compiled: CompiledSubgraph) -> None:
        return


class MemorySubgraph(CompiledSubgraph):
    memory: MemoryManager

    def __init__(self, mode: MemoryMode) -> None:
        self.memory = MemoryManager(mode)
        self.piece: Piece = self.memory.get(4, Storage.DYNAMIC)
        self.running = self.most = 0
        self.fail = False
        self.lock = threading.Lock()

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert inputs[0] is not None
        self.memory.bytes(self.piece)[:] = inputs[0].view(np.uint8)
        threading.Event().wait(0.002)
        outputs[0].write(self.memory.bytes(self.piece).view(np.float32))
        with self.lock:
            self.running -= 1
        if self.fail:
            raise general_failure("test failure")


@pytest.mark.parametrize(
    ("preference", "keeps_memory"),
    [(ExecutionPreference.LOW_POWER, False), (ExecutionPreference.SUSTAINED_SPEED, True)],
)
def test_memory_is_acquired_around_executions(preference: ExecutionPreference, keeps_memory: bool) -> None:
    backend = MemoryBackend()
    with device_of(backend) as device:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        launch_preparation(device, MODEL, outcomes.put, PrepareModelConfig(preference=preference))
        outcome = outcomes.get(timeout=60)
        (compiled,) = backend.subgraphs
        assert not compiled.memory.is_held, "acquired by the first execution"
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda n: execute(outcome, [f(n)])[1][0][0], range(12)))
        assert results == list(range(12)), "executions share one arena one after the other"
        assert compiled.most == 1
        assert compiled.memory.is_held == keeps_memory
        compiled.fail = True
        with pytest.raises(HalError, match="test failure"):
            execute(outcome, [f(1)])
        assert compiled.memory.is_held == keeps_memory


def test_subgraph_with_hooks_keeps_copies_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver then passes the client's memory without a copy."""
    for copies in (False, True):
        monkeypatch.setattr(RecordingSubgraph, "copies_inputs", copies)
        with device_of(RecordingBackend()) as device:
            prepared = prepare(MODEL, device).prepared_model
            assert prepared is not None
            assert prepared.plan.copies_inputs == copies


def test_shapes_are_unknown_after_a_failed_resize() -> None:
    backend = RecordingBackend()
    with device_of(backend) as device:
        outcome = prepare(MODEL, device)
        execute(outcome, [f(1)])
        backend.fails.add("resize (2,)")
        with pytest.raises(HalError, match="resize"):
            execute(outcome, [f(1, 2)])
        backend.events.clear()
        execute(outcome, [f(1)])
        assert backend.events[1] == "resize (1,)"
