"""Hooks: each is called in its order, also when something fails; memory is there while an execution runs."""

import gc
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)
from driver.backends.memory import MemoryManager, MemoryMode, Piece, Storage
from driver.device import Outcome
from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorStatus, ExecutionPreference, PrepareModelConfig
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import execute, model_of, prepare, tensor
from tests.driver.test_placement import device_of

X = tensor(T.TENSOR_FLOAT32, (0,))
MODEL = model_of(Op.RELU, [(X, 0)], [X], constants=False)
EXECUTION = ["execute_begin", "execute", "wait_finish", "execute_end"]


class Noted(CompiledSubgraph):
    """Passes its input on; notes what is called, and fails where it is told to."""

    def __init__(self, events: list[str], fails: set[str]) -> None:
        self.events, self.fails = events, fails

    def note(self, name: str) -> None:
        self.events.append(name)
        if name in self.fails:
            raise general_failure(f"{name} fails")

    def resize_begin(self) -> None:
        self.note("resize_begin")

    def resize(self, shapes: Sequence[tuple[int, ...] | None]) -> None:
        self.note(f"resize {shapes[0]}")

    def resize_end(self) -> None:
        self.note("resize_end")

    def execute_begin(self) -> None:
        self.note("execute_begin")

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self.note("execute")
        assert inputs[0] is not None
        outputs[0].write(inputs[0])

    def wait_finish(self) -> None:
        self.note("wait_finish")

    def execute_end(self) -> None:
        self.note("execute_end")


class Noting(Backend):
    """Compiles what notes."""

    id = "A"
    version = "1"

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fails: set[str] = set()

    def supports(self, operation: OperationView) -> Support:
        return Support()

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        self.note("compile")
        return Noted(self.events, self.fails)

    def note(self, name: str) -> None:
        self.events.append(name)
        if name in self.fails:
            raise general_failure(f"{name} fails")

    def before_load(self, network: int) -> None:
        self.note("before_load")

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        assert isinstance(compiled, Noted)
        self.note("after_load")

    def before_unload(self, network: int, compiled: CompiledSubgraph) -> None:
        assert isinstance(compiled, Noted)
        self.note("before_unload")

    def after_unload(self, network: int) -> None:
        self.note("after_unload")


def f(*values: float) -> AnyArray:
    return np.array(values, np.float32)


def test_hooks_in_their_order() -> None:
    backend = Noting()
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
def test_an_end_for_every_beginning(fails: str, called: list[str]) -> None:
    backend = Noting()
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
        assert ("resize_begin" in backend.events) == fails.startswith("resize"), "what failed is done again"


@pytest.mark.parametrize(
    ("fails", "called"),
    [
        ("before_load", ["before_load"]),
        ("compile", ["before_load", "compile", "after_unload"]),
        ("after_load", ["before_load", "compile", "after_load", "before_unload", "after_unload"]),
    ],
)
def test_what_does_not_load_is_unloaded(fails: str, called: list[str]) -> None:
    backend = Noting()
    backend.fails.add(fails)
    with device_of(backend) as device:
        outcome = prepare(MODEL, device)
        assert outcome.status == ErrorStatus.GENERAL_FAILURE
        assert f"{fails} fails" in outcome.reason
        assert backend.events == called


def test_a_hook_that_fails_does_not_stop_the_other() -> None:
    backend = Noting()
    backend.fails.add("before_unload")
    with device_of(backend) as device:
        prepare(MODEL, device)
        gc.collect()
        assert backend.events[-2:] == ["before_unload", "after_unload"]


class Remembering(Noting):
    """Keeps its input in planned memory for a moment, and counts who is in there at once."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Kept] = []

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        self.made.append(Kept(options.memory_mode))
        return self.made[-1]

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        return

    def before_unload(self, network: int, compiled: CompiledSubgraph) -> None:
        return


class Kept(CompiledSubgraph):
    memory: MemoryManager

    def __init__(self, mode: MemoryMode) -> None:
        self.memory = MemoryManager(mode)
        self.piece: Piece = self.memory.get(4, Storage.DYNAMIC)
        self.inside = self.most = 0
        self.fail = False
        self.lock = threading.Lock()

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert inputs[0] is not None
        self.memory.bytes(self.piece)[:] = inputs[0].view(np.uint8)
        threading.Event().wait(0.002)
        outputs[0].write(self.memory.bytes(self.piece).view(np.float32))
        with self.lock:
            self.inside -= 1
        if self.fail:
            raise general_failure("told to")


@pytest.mark.parametrize(
    ("preference", "held"),
    [(ExecutionPreference.LOW_POWER, False), (ExecutionPreference.SUSTAINED_SPEED, True)],
)
def test_memory_is_held_around_executions(preference: ExecutionPreference, held: bool) -> None:
    backend = Remembering()
    with device_of(backend) as device:
        told: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        device.prepare_model(MODEL, told.put, PrepareModelConfig(preference=preference))
        outcome = told.get(timeout=30)
        (compiled,) = backend.made
        assert not compiled.memory.is_held, "nothing before the first execution"
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda n: execute(outcome, [f(n)])[1][0][0], range(12)))
        assert results == list(range(12)), "one after the other in one arena"
        assert compiled.most == 1
        assert compiled.memory.is_held == held
        compiled.fail = True
        with pytest.raises(HalError, match="told to"):
            execute(outcome, [f(1)])
        assert compiled.memory.is_held == held


def test_what_has_hooks_may_copy_its_inputs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host then passes a client's memory as it lies."""
    for copies in (False, True):
        monkeypatch.setattr(Noted, "copies_inputs", copies)
        with device_of(Noting()) as device:
            prepared = prepare(MODEL, device).prepared_model
            assert prepared is not None
            assert prepared.plan.copies_inputs == copies


def test_after_a_resize_that_failed_the_old_shapes_are_resized_to_again() -> None:
    backend = Noting()
    with device_of(backend) as device:
        outcome = prepare(MODEL, device)
        execute(outcome, [f(1)])
        backend.fails.add("resize (2,)")
        with pytest.raises(HalError, match="resize"):
            execute(outcome, [f(1, 2)])
        backend.events.clear()
        execute(outcome, [f(1)])
        assert backend.events[1] == "resize (1,)"
