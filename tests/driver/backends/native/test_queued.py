"""A native plug-in for a device with a queue and memory of its own (`queued.c`)."""

import ctypes as c
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.client.core.arrays import ModelIO
from nnhal.errors import MISSED_DEADLINE, HalError
from nnhal.types import ErrorStatus, ExecutionPreference, Model, Operand, PrepareModelConfig
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.boundary import isolation
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import LoadError, load
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.deadline import now_ns
from tests.concurrency import TIMEOUT_S, wait_until
from tests.driver.backends.native.building import HEADERS, build
from tests.driver.fake_backend import parts
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import execute, prepare

QUEUED, INTO, OUT_OF, WITHIN, BUFFERS = range(5)
X = np.array([1, -2], np.float32)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).with_name("queued.c")
    return build(source, tmp_path_factory.mktemp("queued") / "Test_Queued_backend.so", HEADERS, "-pthread")


@pytest.fixture
def library(plugin: Path) -> Iterator[c.CDLL]:
    """Return the loaded plug-in, to control its device."""
    library = c.CDLL(str(plugin))
    library.counter.restype = c.c_long
    yield library
    library.hold(0)


@pytest.fixture
def device(plugin: Path, library: c.CDLL) -> Iterator[Device]:
    """Return a device with one slot for executions."""
    with patch("nnhal_driver.device.available_cpus", lambda: 1):
        device = Device("test", [load(file_candidate(plugin)).backend, CpuRef()], DeviceOptions(merge_partitions=False))
    yield device
    library.hold(0)
    device.close()


@pytest.fixture
def counts(library: c.CDLL) -> Callable[[], list[int]]:
    """Return the numbers of copies since the start: into the device, out of it, within it."""
    start = [library.counter(which) for which in (INTO, OUT_OF, WITHIN)]
    return lambda: [
        library.counter(which) - before for which, before in zip((INTO, OUT_OF, WITHIN), start, strict=True)
    ]


def chain(*types: int, outputs: Sequence[int] = (-1,), count: int = 2) -> Model:
    b = ModelBuilder()
    values = [b.input(T.TENSOR_FLOAT32, [count])]
    for type_ in types:
        values.append(b.add(type_, values[-1], output=Operand(T.TENSOR_FLOAT32, (count,))))
    for number in outputs:
        b.output(values[number])
    return b.build()


def test_values_stay_on_the_device(device: Device, counts: Callable[[], list[int]]) -> None:
    outcome = prepare(chain(Op.NEG, Op.RELU, Op.NEG, outputs=(1, 3)), device)
    assert parts(outcome.placement) == [("Queued", (0,)), ("CpuRef", (1,)), ("Queued", (2,))]
    first, last = execute(outcome, [X])[1]
    np.testing.assert_array_equal(first, -X)
    np.testing.assert_array_equal(last, -((-X).clip(0)))
    assert counts() == [2, 2, 0]


def test_later_partitions_use_values_on_the_device(device: Device, counts: Callable[[], list[int]]) -> None:
    b = ModelBuilder()
    floats = Operand(T.TENSOR_FLOAT32, (2,))
    first = b.add(Op.NEG, b.input(T.TENSOR_FLOAT32, [2]), output=floats)
    b.output(b.add(Op.MAXIMUM, first, b.add(Op.RELU, first, output=floats), output=floats))
    outcome = prepare(b.build(), device)
    assert parts(outcome.placement) == [("Queued", (0,)), ("CpuRef", (1,)), ("Queued", (2,))]
    np.testing.assert_array_equal(execute(outcome, [X])[1][0], (-X).clip(0))
    assert counts() == [2, 2, 0]  # x and the RELU in, the first value and the result out


def test_waiting_executions_hold_no_slot(device: Device, library: c.CDLL) -> None:
    queued, direct = prepare(chain(Op.NEG), device), prepare(chain(Op.RELU), device)
    before = library.counter(QUEUED)
    with ThreadPoolExecutor(4) as pool:
        try:
            library.hold(1)
            running = [pool.submit(execute, queued, [X + np.float32(number)]) for number in range(3)]
            assert wait_until(lambda: library.counter(QUEUED) - before == 3)
            other = pool.submit(execute, direct, [X])
            np.testing.assert_array_equal(other.result(TIMEOUT_S)[1][0], X.clip(0))
            assert not any(future.done() for future in running)
        finally:
            library.hold(0)
        for number, future in enumerate(running):
            np.testing.assert_array_equal(future.result(TIMEOUT_S)[1][0], -(X + np.float32(number)))


def test_device_that_hangs(device: Device, library: c.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    queued, direct = prepare(chain(Op.NEG), device), prepare(chain(Op.RELU), device)
    model = queued.prepared_model
    assert model is not None
    request = ModelIO(model.inputs, model.outputs, (), ()).request([X])
    library.hold(1)
    with pytest.raises(HalError) as caught:
        model.execute_synchronously(request, call=ExecutionCall(now_ns() + 50_000_000))
    assert caught.value.status in MISSED_DEADLINE
    np.testing.assert_array_equal(execute(direct, [X])[1][0], X.clip(0))
    monkeypatch.setattr(isolation, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 2))
    with pytest.raises(HalError, match="it has not answered in wait_deferred"):
        execute(queued, [X])
    library.hold(0)
    assert wait_until(lambda: succeeds(queued))


def succeeds(outcome: Outcome) -> bool:
    try:
        return bool(np.array_equal(execute(outcome, [X])[1][0], -X))
    except HalError:
        return False


def test_errors_of_the_device_fail_the_execution(device: Device) -> None:
    outcome = prepare(chain(Op.ABS), device)
    with pytest.raises(HalError, match="the device is broken") as caught:
        execute(outcome, [X])
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    np.testing.assert_array_equal(execute(prepare(chain(Op.NEG), device), [X])[1][0], -X)


@pytest.mark.parametrize("preference", [ExecutionPreference.SUSTAINED_SPEED, ExecutionPreference.LOW_POWER])
def test_plugin_is_told_of_its_block(device: Device, preference: ExecutionPreference) -> None:
    outcomes: list[Outcome] = []
    launch_preparation(device, chain(Op.NEG, count=7), outcomes.append, PrepareModelConfig(preference=preference))
    assert wait_until(lambda: outcomes)
    values = np.arange(7, dtype=np.float32)
    for _ in range(3):  # in mode LIMIT, each has a new block
        np.testing.assert_array_equal(execute(outcomes[0], [values])[1][0], -values)


def test_all_buffers_are_released(device: Device, library: c.CDLL) -> None:
    outcome = prepare(chain(Op.NEG, Op.RELU, Op.NEG), device)
    for _ in range(3):
        execute(outcome, [X])
    gc.collect()
    assert library.counter(BUFFERS) == 0


def test_functions_of_device_memory_come_together(plugin: Path, tmp_path: Path) -> None:
    source = tmp_path / "queued.c"
    text = Path(__file__).with_name("queued.c").read_text()
    source.write_text(text.replace("    self->copy_buffer = copy_buffer;\n", "    (void)copy_buffer;\n"))
    broken = build(source, tmp_path / "Test_Partly_backend.so", HEADERS, "-pthread")
    with pytest.raises(LoadError, match="expected all of device_operands, acquire_buffer, release_buffer, copy_buffer"):
        load(file_candidate(broken))
