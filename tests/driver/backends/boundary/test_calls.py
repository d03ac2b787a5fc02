"""Exceptions of backends, in every method: a call has an answer, a preparation one notify, and threads live on."""

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import pytest

from nnhal.client.core.arrays import ModelIO
from nnhal.errors import FAILURES, MISSED_DEADLINE, HalError
from nnhal.types import (
    CacheState,
    DataLocation,
    ErrorStatus,
    FenceState,
    Memory,
    PerformanceInfo,
    Request,
    RequestArgument,
)
from nnhal_driver.backends.boundary.answers import performance
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.execution.burst import Burst
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.preparation.launch import GivenModel
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.deadline import now_ns
from tests.driver.blocking_backend import until
from tests.driver.fake_backend import device_of
from tests.driver.hostile_backend import EXCEPTIONS, MODEL, Hostile, raises
from tests.driver.launches import launch_preparation
from tests.driver.model_cache.cache_files import Pair
from tests.driver.one_operation import execute, prepare

VALUES = np.array([1, -2], np.float32)

T = TypeVar("T")
OnMethod: TypeAlias = Callable[[str], None]

PREPARING = ("supports", "optimize", "before_load", "compile", "after_load")
EXECUTING = ("resize_begin", "resize", "resize_end", "execute_begin", "execute", "wait_finish", "execute_end")
TELLING = ("extensions", "performance", "fingerprint")


@pytest.fixture
def backend() -> Hostile:
    return Hostile()


@pytest.fixture
def device(backend: Hostile) -> Iterator[Device]:
    with device_of(backend) as device:
        yield device


@pytest.fixture(params=EXCEPTIONS)
def error(request: pytest.FixtureRequest) -> Callable[[], BaseException]:
    return EXCEPTIONS[request.param]


@pytest.fixture
def fail(backend: Hostile, error: Callable[[], BaseException]) -> OnMethod:
    """Return a function that makes a method of the backend raise the error."""
    return lambda method: backend.acts.update({method: raises(error)})


@pytest.fixture
def assert_logged(caplog: pytest.LogCaptureFixture) -> OnMethod:
    """Return a function that asserts that the failure of a method of the backend was logged."""

    def check(method: str) -> None:
        texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert any("Hostile" in text and method in text for text in texts), texts

    return check


def on_thread(call: Callable[[], T]) -> T:
    """Call a function on another thread: in the main thread, KeyboardInterrupt is the user's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(timeout=60)


@pytest.mark.parametrize("method", PREPARING)
def test_preparation_has_one_outcome(device: Device, method: str, fail: OnMethod, assert_logged: OnMethod) -> None:
    outcomes: list[Outcome] = []
    fail(method)
    threads = set(threading.enumerate())
    for _ in range(3):  # more often than there are threads that prepare
        launch_preparation(device, MODEL, outcomes.append)
    device._scheduler.close()
    assert [outcome.status for outcome in outcomes] == [ErrorStatus.GENERAL_FAILURE] * 3
    assert all(outcome.reason for outcome in outcomes)
    assert_logged(method)
    assert threads >= {thread for thread in threading.enumerate() if thread.name.startswith("nnhal-prepare")}


@pytest.mark.parametrize("method", PREPARING)
def test_device_prepares_after_a_failure(device: Device, backend: Hostile, method: str) -> None:
    for kind in ("SystemExit", "KeyboardInterrupt", "GeneratorExit"):
        backend.acts[method] = raises(EXCEPTIONS[kind])
        for _ in range(3):
            assert prepare(MODEL, device).status == ErrorStatus.GENERAL_FAILURE
        backend.acts.clear()
        assert execute(prepare(MODEL, device), [VALUES])[1][0].tolist() == VALUES.tolist()


@pytest.mark.parametrize("method", PREPARING)
def test_another_backend_takes_over(method: str, error: Callable[[], BaseException]) -> None:
    with device_of(Hostile({method: raises(error)}), CpuRef()) as device:
        assert on_thread(lambda: device.get_supported_operations(GivenModel(MODEL)))[0] == [True]
        assert execute(prepare(MODEL, device), [VALUES])[1][0].tolist() == [1, 0]


def test_operation_is_unsupported_if_the_question_fails(
    device: Device, fail: OnMethod, assert_logged: OnMethod
) -> None:
    fail("supports")
    supported, placement = on_thread(lambda: device.get_supported_operations(GivenModel(MODEL)))
    assert supported == [False]
    assert placement.operations[0].refusals[0].reason.startswith("asking it failed: ")
    assert_logged("supports")


def test_shortage_of_memory_is_not_a_fault_of_the_backend(device: Device, backend: Hostile) -> None:
    """GetSupportedOperations answers, and the preparation may be repeated."""
    backend.acts["supports"] = raises(lambda: MemoryError("7 GiB"))
    supported, placement = device.get_supported_operations(GivenModel(MODEL))
    assert (supported, "memory" in placement.operations[0].refusals[0].reason) == ([False], True)
    assert prepare(MODEL, device).status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT


def _prepared(device: Device) -> PreparedModel:
    prepared = prepare(MODEL, device).prepared_model
    assert prepared is not None
    return prepared


@pytest.mark.parametrize("method", EXECUTING)
def test_execution_fails_with_a_status(
    device: Device, backend: Hostile, method: str, fail: OnMethod, assert_logged: OnMethod
) -> None:
    prepared = _prepared(device)
    io = ModelIO(prepared.inputs, prepared.outputs, (), ())
    fail(method)
    burst = Burst(prepared, 1)
    calls = [
        lambda: prepared.execute_synchronously(io.request([VALUES])),
        lambda: burst.execute_synchronously(io.request([VALUES]), [-1] * len(io.request([VALUES]).pools)),
    ]
    for call in calls:
        with pytest.raises(HalError) as caught:
            on_thread(call)
        assert (caught.value.status, type(caught.value)) == (ErrorStatus.GENERAL_FAILURE, HalError)
        assert caught.value.reason
    assert_logged(method)
    backend.acts.clear()
    assert execute(prepare(MODEL, device), [VALUES])[1][0].tolist() == VALUES.tolist()


@pytest.mark.parametrize("method", EXECUTING)
@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "status NONE"])
def test_fence_of_a_failed_execution_ends(device: Device, backend: Hostile, method: str, kind: str) -> None:
    prepared = _prepared(device)
    backend.acts[method] = raises(EXCEPTIONS[kind])
    ended = threading.Event()
    arguments = [RequestArgument(location=DataLocation(pool, 0, VALUES.nbytes)) for pool in range(2)]
    pools = Memory.of(VALUES), Memory.of(np.empty_like(VALUES), writable=True)
    execution = prepared.execute_fenced(Request((arguments[0],), (arguments[1],), pools))
    execution.fence.add_listener(lambda _: ended.set())
    assert ended.wait(60)
    assert (execution.fence.state, execution.info().status) == (FenceState.ERROR, ErrorStatus.GENERAL_FAILURE)


def test_interrupt_of_the_user_is_not_swallowed(device: Device, backend: Hostile) -> None:
    """In the main thread KeyboardInterrupt ends the program. SystemExit of a backend does not, in any thread."""
    outcome = prepare(MODEL, device)
    backend.acts["execute"] = raises(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        execute(outcome, [VALUES])
    backend.acts["execute"] = raises(lambda: SystemExit(3))
    with pytest.raises(HalError, match="Hostile failed in execute: SystemExit: 3"):
        execute(outcome, [VALUES])
    backend.acts["supports"] = raises(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        device.get_supported_operations(GivenModel(MODEL))


def test_valid_error_passes_unchanged(device: Device, backend: Hostile, caplog: pytest.LogCaptureFixture) -> None:
    outcome = prepare(MODEL, device)
    for status in sorted(FAILURES - MISSED_DEADLINE):
        backend.acts["execute"] = raises(partial(HalError, status, "a reason", rule="V-RUN-01"))
        with pytest.raises(HalError) as caught:
            execute(outcome, [VALUES])
        assert (caught.value.status, caught.value.reason, caught.value.rule) == (status, "a reason", "V-RUN-01")
    assert not caplog.records


@pytest.mark.parametrize("method", EXECUTING)
@pytest.mark.parametrize("status", sorted(MISSED_DEADLINE))
def test_missed_deadline_of_an_execution_without_one_is_a_failure(
    device: Device, backend: Hostile, status: ErrorStatus, method: str, assert_logged: OnMethod
) -> None:
    outcome = prepare(MODEL, device)
    backend.acts[method] = raises(lambda: HalError(status, "too late"))
    with pytest.raises(HalError, match=f"Hostile: {method} reports a missed deadline") as caught:
        execute(outcome, [VALUES])
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    assert_logged(method)


@pytest.mark.parametrize("status", sorted(MISSED_DEADLINE))
def test_missed_deadline_of_an_execution_with_one_is_that_of_the_execution(
    device: Device, backend: Hostile, status: ErrorStatus
) -> None:
    prepared = _prepared(device)
    deadline_ns = now_ns() + 50_000_000

    def wait_until_late() -> None:
        assert until(lambda: now_ns() > deadline_ns)
        raise HalError(status, "the backend says so")

    backend.acts["execute"] = wait_until_late
    io = ModelIO(prepared.inputs, prepared.outputs, (), ())
    call = ExecutionCall(deadline_ns)
    with pytest.raises(HalError) as caught:
        prepared.execute_synchronously(io.request([VALUES]), call=call)
    assert caught.value.status in MISSED_DEADLINE
    assert caught.value.reason == "the deadline passed during the execution"


@pytest.mark.parametrize("method", PREPARING)
@pytest.mark.parametrize("status", sorted(MISSED_DEADLINE))
def test_missed_deadline_of_a_preparation_without_one_is_a_failure(
    device: Device, backend: Hostile, status: ErrorStatus, method: str, assert_logged: OnMethod
) -> None:
    backend.acts[method] = raises(lambda: HalError(status, "too late"))
    outcome = prepare(MODEL, device)
    assert (outcome.status, "missed" in outcome.reason) == (ErrorStatus.GENERAL_FAILURE, True)
    assert_logged(method)


@pytest.mark.parametrize("method", ["before_unload", "after_unload"])
def test_unloading_goes_on(device: Device, method: str, fail: OnMethod, assert_logged: OnMethod) -> None:
    fail(method)

    def prepare_and_drop() -> None:
        prepare(MODEL, device)
        gc.collect()

    on_thread(prepare_and_drop)
    assert_logged(method)


def test_failure_to_save_is_a_warning(device: Device, fail: OnMethod, assert_logged: OnMethod) -> None:
    fail("save")
    pair, outcomes = Pair(), list[Outcome]()
    launch_preparation(device, MODEL, outcomes.append, cache=pair.files())
    device._scheduler.close()
    pair.close()
    (outcome,) = outcomes
    assert (outcome.status, outcome.cache.state) == (ErrorStatus.NONE, CacheState.NOT_SAVED)
    assert "save" in outcome.cache.reason
    assert_logged("save")


def test_failure_to_load_has_one_outcome(device: Device, fail: OnMethod, assert_logged: OnMethod) -> None:
    pair, outcomes, saved = Pair(), list[Outcome](), threading.Event()
    launch_preparation(device, MODEL, lambda _: saved.set(), cache=pair.files())
    assert saved.wait(60)
    fail("load")
    for _ in range(3):
        device.prepare_model_from_cache(outcomes.append, pair.files())
    device._scheduler.close()
    pair.close()
    assert [outcome.status for outcome in outcomes] == [ErrorStatus.GENERAL_FAILURE] * 3
    assert_logged("load")


@pytest.mark.parametrize("method", TELLING)
def test_device_describes_itself(method: str, error: Callable[[], BaseException], assert_logged: OnMethod) -> None:
    """A backend that fails to tell about itself costs the device nothing else."""

    def describe() -> None:
        backend = Hostile({method: raises(error)})
        assert performance(backend) == PerformanceInfo(1.0, 1.0)
        with device_of(backend, CpuRef()) as device:
            names = [extension.name for extension in device.get_supported_extensions()]
            assert names == ([] if method == "extensions" else ["com.example.quiet"])
            assert device.get_supported_operations(GivenModel(MODEL))[0] == [True]
            assert device.get_version_string().endswith(f"Hostile/1 CpuRef/{CpuRef.version}")

    on_thread(describe)
    assert_logged(method)


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "status NONE"])
def test_capabilities_do_not_depend_on_the_stated_performance(kind: str) -> None:
    with device_of(Hostile({"performance": raises(EXCEPTIONS[kind])}), CpuRef()) as device:
        figures = on_thread(device.get_capabilities).operand_performance
    assert figures and all(entry.info.exec_time > 0 and entry.info.power_usage > 0 for entry in figures)


def test_launch_error_is_notified_once(device: Device) -> None:
    device.close()
    outcomes: list[Outcome] = []
    with pytest.raises(HalError) as caught:
        launch_preparation(device, MODEL, outcomes.append)
    assert [outcome.status for outcome in outcomes] == [caught.value.status]
