"""`connect()` without a target, with both clients: an embedded service that lives as long as the device."""

import asyncio
import os

import numpy as np
import pytest

import nnhal
import nnhal.aio
import nnhal.client.aio.reconnect
import nnhal.client.sync.reconnect
from nnhal import ModelBuilder
from nnhal.embedded import EmbeddedService
from nnhal.types import Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.concurrency import wait_until
from tests.shared import shared


def doubling_model() -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2])
    b.output(b.add(Op.ADD, x, x, 0, output=x.description))
    return b.build()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[EmbeddedService]:
    """Return the list that the services which the clients start are added to."""
    services: list[EmbeddedService] = []

    class Recorded(EmbeddedService):
        def __init__(self) -> None:
            super().__init__()
            services.append(self)

    for module in (nnhal.client.sync.reconnect, nnhal.client.aio.reconnect):
        monkeypatch.setattr(module, "EmbeddedService", Recorded)
    return services


def is_running(service: EmbeddedService) -> bool:
    try:
        os.kill(service.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_service_ends_with_the_device(started: list[EmbeddedService]) -> None:
    with nnhal.connect() as device:
        (service,) = started
        outputs = device.prepare(doubling_model()).result(60).execute([[1, 2]])
        np.testing.assert_array_equal(outputs[0], [2, 4])
        assert is_running(service)
    assert not is_running(service)
    device.close()


async def test_service_ends_with_the_asyncio_device(started: list[EmbeddedService]) -> None:
    async with nnhal.aio.connect() as device:
        (service,) = started
        outputs = await (await device.prepare(doubling_model())).execute([[1, 2]])
        np.testing.assert_array_equal(outputs[0], [2, 4])
        assert is_running(service)
    assert not is_running(service)
    await device.close()


def test_each_device_has_its_own_service(started: list[EmbeddedService]) -> None:
    with nnhal.connect(), nnhal.connect() as second:
        assert started[0].pid != started[1].pid
        started[0].close()
        assert "CpuRef" in second.version


async def test_failed_connection_leaves_no_service(started: list[EmbeddedService]) -> None:
    with pytest.raises(nnhal.HalError, match="'other'"):
        nnhal.connect(device="other")
    with pytest.raises(nnhal.HalError, match="'other'"):
        await nnhal.aio.connect(device="other")
    assert [is_running(service) for service in started] == [False, False]


async def test_service_that_fails_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_BACKENDS", '["NoSuchBackend"]')
    with pytest.raises(nnhal.DeadObjectError, match="there is no backend 'NoSuchBackend'"):
        nnhal.connect()
    with pytest.raises(nnhal.DeadObjectError, match="there is no backend 'NoSuchBackend'"):
        await nnhal.aio.connect()


async def test_cancelled_connection_leaves_no_service(started: list[EmbeddedService]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await nnhal.aio.connect()
    has_ended = await asyncio.to_thread(wait_until, lambda: started and not is_running(started[0]))
    assert has_ended, "the service still runs" if started else "the service never started"


def test_killed_service_is_closed_without_an_error(started: list[EmbeddedService]) -> None:
    with nnhal.connect() as device:
        os.kill(started[0].pid, 9)

        def call() -> bool:
            device.backends()
            return False

        with pytest.raises(nnhal.DeadObjectError):
            wait_until(call)


def test_models_of_every_kind_run() -> None:
    """A detector whose outputs have wrong shapes in the file, a composite, and one signature of several."""
    with nnhal.connect() as device:
        detector = device.prepare(shared("models/ssd_mobilenet_v1.tflite")).result(60)
        shapes = [output.shape for output in detector.execute([np.zeros((1, 300, 300, 3), np.uint8)])]
        assert shapes == [(1, 10, 4), (1, 10), (1, 10), (1,)]
        device.prepare(shared("models/group_norm.tflite")).result(60)
        signed = device.prepare(shared("models/multi_signature.tflite"), signature="sub").result(60)
        outputs = signed.execute({"a": np.full((10, 10), 5, np.float32), "b": np.full((10, 10), 2, np.float32)})
        np.testing.assert_array_equal(outputs["output"], np.full((10, 10), 3))
        with pytest.raises(TypeError, match="to choose a signature"):
            device.prepare(doubling_model(), signature="sub")
