"""Plug-ins that hang while models are prepared or executed: they stop nothing but their own use."""

import gc
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from nnhal.client.core.arrays import ModelIO
from nnhal.errors import MISSED_DEADLINE, HalError
from nnhal.types import CacheState, ErrorStatus, PrepareModelConfig
from nnhal.types import OperationType as Op
from nnhal_driver.activity import TABLE_BYTES, ActivityTable, read_activities
from nnhal_driver.backends.api import Profile, ProfilingContext, Support
from nnhal_driver.backends.boundary import isolation
from nnhal_driver.backends.boundary.calls import call
from nnhal_driver.backends.identity import BackendIdentity, set_identity
from nnhal_driver.backends.memory import MemoryManager, Storage
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.preparation.launch import GivenModel
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.deadline import now_ns
from tests.concurrency import new_threads
from tests.driver.blocking_backend import TIMEOUT_S, until
from tests.driver.fake_backend import device_of
from tests.driver.hostile_backend import DEFAULT, MODEL, Hostile, X, returns
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import Pair
from tests.driver.one_operation import execute, execute_profiled, model_of, prepare

VALUES = np.array([1, -2], np.float32)
COPIED, COMPUTED = [1, -2], [1, 0]
"""Outputs of the plug-in, and of CpuRef."""

PREPARING = ("supports", "optimize", "create_memory_manager", "before_load", "compile", "after_load")
TELLING = ("before_load_network", "after_load_network")
EXECUTING = ("resize_begin", "resize", "resize_end", "execute_begin", "execute", "wait_finish", "execute_end")
LONG = ("execute", "wait_finish")
OTHER = model_of(Op.ABS, [(X, 0)], [X], constants=False)
"""Model that the plug-in does not support here."""


@dataclass
class Hang:
    """Method that returns when the test says so. `begun`: set for each call that hangs."""

    go: threading.Event = field(default_factory=threading.Event)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    threads: list[str] = field(default_factory=list)

    def __call__(self) -> object:
        self.threads.append(threading.current_thread().name)
        self.begun.release()
        self.go.wait(TIMEOUT_S)
        return DEFAULT

    def wait(self) -> None:
        """Wait until a call hangs."""
        assert self.begun.acquire(timeout=TIMEOUT_S)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Return the time by which calls take too long, for the test to change."""
    time = [1000.0]
    monkeypatch.setattr(isolation, "time", SimpleNamespace(monotonic=lambda: time[0]))
    yield time


@pytest.fixture
def backend() -> Hostile:
    plugin = Hostile()
    set_identity(plugin, BackendIdentity("digest of its files"))
    return plugin


@pytest.fixture
def hang(backend: Hostile) -> Iterator[Hang]:
    hang = Hang()
    yield hang
    hang.go.set()


@pytest.fixture
def device(backend: Hostile, hang: Hang) -> Iterator[Device]:
    before = threading.enumerate()
    with device_of(backend, CpuRef()) as device:
        yield device
        hang.go.set()
    gc.collect()  # errors that a test has caught refer to the model
    assert until(lambda: not new_threads(before)), new_threads(before)


def launch(device: Device, config: PrepareModelConfig | None = None) -> Callable[[], Outcome]:
    """Launch a preparation, and return a function that waits for its outcome."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    launch_preparation(device, MODEL, outcomes.put, config)
    return lambda: outcomes.get(timeout=TIMEOUT_S)


def outputs(outcome: Outcome) -> list[float]:
    """Return the outputs of a prepared model."""
    values: list[float] = execute(outcome, [VALUES])[1][0].tolist()
    return values


@pytest.mark.parametrize("method", PREPARING)
def test_other_backends_take_over(
    device: Device, backend: Hostile, hang: Hang, clock: list[float], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend.acts[method] = hang
    first = launch(device)
    hang.wait()
    clock[0] += 31
    outcome = first()
    assert outputs(outcome) == COMPUTED
    reason = f"backend Hostile hangs: it has not answered in {method} for 31.0 s"
    assert outcome.placement is not None
    assert reason in outcome.placement.operations[0].refusals[0].reason
    assert [(each.code, each.text) for each in outcome.warnings] == [("backend-hangs", reason)]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        f"{reason}. It is not used until it answers"
    ]


@pytest.mark.parametrize("method", TELLING)
def test_notices_do_not_stop_the_preparation(
    device: Device, backend: Hostile, hang: Hang, clock: list[float], method: str
) -> None:
    backend.acts[method] = hang
    first = launch(device)
    hang.wait()
    clock[0] += 6
    assert first().status == ErrorStatus.NONE


def test_further_models_do_not_wait_until_it_answers(
    device: Device, backend: Hostile, hang: Hang, clock: list[float]
) -> None:
    backend.acts["compile"] = hang
    first = launch(device)
    hang.wait()
    clock[0] += 31
    first()
    for _ in range(3):
        assert outputs(prepare(MODEL, device)) == COMPUTED
    assert len(hang.threads) == 1
    supported, placement = device.get_supported_operations(GivenModel(MODEL))
    assert supported == [True] and "Hostile hangs" in placement.operations[0].refusals[0].reason
    del backend.acts["compile"]
    hang.go.set()
    assert until(lambda: outputs(prepare(MODEL, device)) == COPIED)
    assert prepare(MODEL, device).warnings == ()


def test_others_that_wait_go_on_once_it_hangs(device: Device, backend: Hostile, hang: Hang, clock: list[float]) -> None:
    backend.acts["compile"] = hang
    first = launch(device)
    hang.wait()
    clock[0] += 20
    others = [launch(device) for _ in range(4)]  # more than may compile at once
    hang.wait()
    clock[0] += 11
    assert [outputs(outcome()) for outcome in (first, *others)] == [COMPUTED] * 5
    assert len(hang.threads) == 2


def test_preparations_without_it_do_not_wait(device: Device, backend: Hostile, hang: Hang, clock: list[float]) -> None:
    """Before it is known to hang, all slots are free for others."""
    backend.acts["compile"] = hang
    first = [launch(device) for _ in range(6)]
    hang.wait()
    assert until(lambda: device.running_preparations == 0 and device.queued_preparations == 0)
    backend.acts["supports"] = lambda: Support("not mine")
    assert outputs(prepare(MODEL, device)) == COMPUTED
    hang.go.set()
    assert [outputs(outcome()) for outcome in first] == [COPIED] * 6


def preparation_threads() -> int:
    return sum(thread.name.startswith("nnhal-prepare") for thread in threading.enumerate())


def test_threads_of_waiting_preparations_end(device: Device, backend: Hostile, hang: Hang) -> None:
    before = preparation_threads()
    backend.acts["compile"] = hang
    waiting = [launch(device) for _ in range(5)]
    assert until(lambda: device.running_preparations == 0 and device.queued_preparations == 0)
    hang.go.set()
    for outcome in waiting:
        outcome()
    for _ in range(8):  # a thread ends after its work
        prepare(MODEL, device)
    assert until(lambda: preparation_threads() <= before)


def test_deadline_ends_the_wait(device: Device, backend: Hostile, hang: Hang) -> None:
    backend.acts["compile"] = hang
    outcome = launch(device, PrepareModelConfig(deadline_ns=now_ns() + 50_000_000))()
    assert outcome.status in MISSED_DEADLINE
    device._scheduler.close()  # which waits for the work


def test_calls_that_answer_have_their_time(device: Device, backend: Hostile, clock: list[float]) -> None:
    """Each call has a timeout of its own, however many there are."""

    def take_a_while() -> object:
        clock[0] += 4.9
        return DEFAULT

    backend.acts |= dict.fromkeys(PREPARING, take_a_while)
    assert outputs(prepare(MODEL, device)) == COPIED


def test_model_that_it_does_not_run_is_not_saved(
    device: Device, backend: Hostile, hang: Hang, clock: list[float]
) -> None:
    backend.acts["compile"] = hang
    pair, outcomes = Pair(), queue.SimpleQueue[Outcome]()
    launch_preparation(device, MODEL, outcomes.put, cache=pair.files())
    hang.wait()
    clock[0] += 31
    cache = outcomes.get(timeout=TIMEOUT_S).cache
    assert (cache.state, "Hostile hangs" in cache.reason) == (CacheState.NOT_SAVED, True)
    pair.close()


@pytest.mark.parametrize("method", ["save", "load"])
def test_cached_models(device: Device, backend: Hostile, hang: Hang, clock: list[float], method: str) -> None:
    pair, outcomes = Pair(), queue.SimpleQueue[Outcome]()
    if method == "load":
        launch_preparation(device, MODEL, outcomes.put, cache=pair.files())
        assert outcomes.get(timeout=TIMEOUT_S).cache.state == CacheState.SAVED
    backend.acts[method] = hang
    if method == "load":
        device.prepare_model_from_cache(outcomes.put, pair.files())
    else:
        launch_preparation(device, MODEL, outcomes.put, cache=pair.files())
    hang.wait()
    clock[0] += 31
    outcome = outcomes.get(timeout=TIMEOUT_S)
    assert "Hostile hangs: it has not answered in" in outcome.cache.reason + outcome.reason
    assert outcome.status == (ErrorStatus.GENERAL_FAILURE if method == "load" else ErrorStatus.NONE)
    pair.close()


@pytest.mark.parametrize("method", ["before_unload", "after_unload", "before_unload_network", "after_unload_network"])
def test_models_are_freed(device: Device, backend: Hostile, hang: Hang, clock: list[float], method: str) -> None:
    backend.acts[method] = hang
    outcome = prepare(MODEL, device)

    def free() -> None:
        nonlocal outcome
        del outcome
        gc.collect()

    thread = threading.Thread(target=free)
    thread.start()
    hang.wait()
    clock[0] += 6
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def test_calls_of_one_compilation_share_a_thread(device: Device, backend: Hostile) -> None:
    threads: dict[str, threading.Thread] = {}

    def note(method: str) -> Callable[[], object]:
        def act() -> object:
            threads[method] = threading.current_thread()
            return DEFAULT

        return act

    backend.acts |= {method: note(method) for method in PREPARING[1:]}
    prepare(MODEL, device)
    assert len(threads) == len(PREPARING) - 1
    assert {thread.name for thread in threads.values()} == {"nnhal-Hostile"} and len(set(threads.values())) == 1


def test_built_in_backend_runs_on_the_calling_thread() -> None:
    assert call(CpuRef(), "supports", threading.current_thread) is threading.current_thread()


def test_record_names_the_thread_that_works(hang: Hang, backend: Hostile) -> None:
    memory = memoryview(bytearray(TABLE_BYTES))
    table = ActivityTable(memory)
    own: list[int] = []

    def compile_() -> object:
        own.append(threading.get_ident())
        return hang()

    backend.acts["compile"] = compile_
    device = Device("test", [backend, CpuRef()], host=DeviceHost(activities=table))
    outcome = launch(device)
    hang.wait()
    (activity,) = read_activities(memory, table.backends)
    assert (activity.thread, activity.backend) == (own[0], "Hostile")
    hang.go.set()
    outcome()
    device.close()


def test_hanging_close_does_not_stop_the_device(backend: Hostile, hang: Hang, clock: list[float]) -> None:
    backend.acts["close"] = hang
    device = Device("test", [backend, CpuRef()])
    closing = threading.Thread(target=device.close)
    closing.start()
    hang.wait()
    clock[0] += 6
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()


# ---- Executions ---------------------------------------------------------------------------------------------


def run_until(outcome: Outcome, seconds: float) -> object:
    """Execute a prepared model with a deadline."""
    prepared = outcome.prepared_model
    assert prepared is not None
    request = ModelIO(prepared.inputs, prepared.outputs, (), ()).request([VALUES])
    return prepared.execute_synchronously(request, call=ExecutionCall(now_ns() + int(seconds * 1e9)))


def submit(pool: ThreadPoolExecutor, outcome: Outcome) -> "Future[list[float]]":
    return pool.submit(outputs, outcome)


@pytest.mark.parametrize("method", EXECUTING)
def test_execution_ends_with_its_deadline(device: Device, backend: Hostile, hang: Hang, method: str) -> None:
    prepared = prepare(MODEL, device)
    backend.acts[method] = hang
    with pytest.raises(HalError) as caught:
        run_until(prepared, 0.05)
    assert caught.value.status in MISSED_DEADLINE


@pytest.mark.parametrize("method", EXECUTING)
def test_execution_without_a_deadline_ends_with_the_time_of_the_method(
    device: Device, backend: Hostile, hang: Hang, clock: list[float], method: str
) -> None:
    prepared = prepare(MODEL, device)
    backend.acts[method] = hang
    with ThreadPoolExecutor(1) as pool:
        execution = submit(pool, prepared)
        hang.wait()
        clock[0] += 31 if method in LONG else 6
        with pytest.raises(HalError, match=f"backend Hostile hangs: it has not answered in {method} for"):
            execution.result(TIMEOUT_S)
        with pytest.raises(HalError, match="backend Hostile hangs"):
            outputs(prepared)  # at once
        assert outputs(prepare(MODEL, device)) == COMPUTED
        backend.acts.clear()
        hang.go.set()
        assert until(lambda: outputs(prepare(MODEL, device)) == COPIED)
        assert outputs(prepared) == COPIED


def test_execution_that_ignores_its_deadline_hangs_a_second_later(
    device: Device, backend: Hostile, hang: Hang, clock: list[float]
) -> None:
    prepared = prepare(MODEL, device)
    backend.acts["execute"] = hang
    with ThreadPoolExecutor(1) as pool:
        execution = pool.submit(run_until, prepared, 1.0)
        hang.wait()
        with pytest.raises(HalError):
            execution.result(TIMEOUT_S)
    clock[0] += 2
    with pytest.raises(HalError, match=r"it has not answered in execute for 2\.0 s"):
        outputs(prepared)


def test_executions_of_others_get_the_slots(device: Device, backend: Hostile, hang: Hang) -> None:
    backend.acts["supports"] = returns(Support("not here"))
    other = prepare(OTHER, device)
    backend.acts.clear()
    prepared = prepare(MODEL, device)
    backend.acts["execute"] = hang
    with ThreadPoolExecutor(32) as pool:
        hanging = [submit(pool, prepared) for _ in range(31)]  # more than there are slots
        hang.wait()
        assert submit(pool, other).result(TIMEOUT_S) == [1, 2]
        hang.go.set()
        assert all(future.result(TIMEOUT_S) == COPIED for future in hanging)


@pytest.mark.parametrize("method", ["acquire", "release"])
def test_memory_managers(device: Device, backend: Hostile, hang: Hang, method: str) -> None:
    class Manager(MemoryManager):
        def acquire(self) -> None:
            backend.act("acquire")
            super().acquire()

        def release(self) -> None:
            backend.act("release")
            super().release()

    def create() -> MemoryManager:
        manager = Manager()
        manager.get(64, Storage.DYNAMIC)
        return manager

    backend.acts["create_memory_manager"] = create
    prepared = prepare(MODEL, device)
    backend.acts[method] = hang
    with pytest.raises(HalError) as caught:
        run_until(prepared, 0.05)
    assert caught.value.status in MISSED_DEADLINE


@pytest.mark.parametrize("method", ["create", "begin", "end"])
def test_profiling_contexts(hang: Hang, clock: list[float], method: str) -> None:
    class Context(ProfilingContext):
        def begin(self, execution: int) -> None:
            if method == "begin":
                hang()

        def end(self, execution: int, profile: Profile) -> None:
            if method == "end":
                hang()

    class Profiled(Hostile):
        def create_profiling_context(self) -> ProfilingContext:
            if method == "create":
                hang()
            return Context()

    plugin = Profiled()
    set_identity(plugin, BackendIdentity("digest of its files"))
    with device_of(plugin, CpuRef()) as device, ThreadPoolExecutor(1) as pool:
        plugin.acts["supports"] = returns(Support("not here"))
        prepared = prepare(MODEL, device)
        execution = pool.submit(execute_profiled, prepared, [VALUES])
        hang.wait()
        clock[0] += 6
        assert execution.result(TIMEOUT_S).spans  # the execution itself is one of CpuRef
        hang.go.set()
