"""`connect()` without a target, by both clients: a service that lives as long as the device."""

import asyncio
import os
import time

import numpy as np
import pytest

import nnhal
import nnhal.aio
import nnhal.aio_warm
import nnhal.warm
from nnhal import ModelBuilder
from nnhal.embedded import EmbeddedService
from nnhal.types import Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op


def doubling() -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2])
    b.output(b.add(Op.ADD, x, x, 0, output=x.description))
    return b.build()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[EmbeddedService]:
    """The services that the clients have started."""
    services: list[EmbeddedService] = []

    class Recorded(EmbeddedService):
        def __init__(self) -> None:
            super().__init__()
            services.append(self)

    for module in (nnhal.warm, nnhal.aio_warm):
        monkeypatch.setattr(module, "EmbeddedService", Recorded)
    return services


def exists(service: EmbeddedService) -> bool:
    try:
        os.kill(service.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_ends_with_the_device(started: list[EmbeddedService]) -> None:
    with nnhal.connect() as device:
        (service,) = started
        outputs = device.prepare(doubling()).result(10).execute([[1, 2]])
        np.testing.assert_array_equal(outputs[0], [2, 4])
        assert exists(service)
    assert not exists(service)
    device.close()


async def test_it_ends_with_the_async_device(started: list[EmbeddedService]) -> None:
    async with nnhal.aio.connect() as device:
        (service,) = started
        outputs = await (await device.prepare(doubling())).execute([[1, 2]])
        np.testing.assert_array_equal(outputs[0], [2, 4])
        assert exists(service)
    assert not exists(service)
    await device.close()


def test_each_device_has_its_own(started: list[EmbeddedService]) -> None:
    with nnhal.connect(), nnhal.connect() as second:
        assert started[0].pid != started[1].pid
        started[0].close()
        assert "CpuRef" in second.version


async def test_a_connection_that_fails_leaves_nothing_running(started: list[EmbeddedService]) -> None:
    with pytest.raises(nnhal.DeadObjectError, match="did not answer within 0 s"):
        nnhal.connect(timeout=0)
    with pytest.raises(nnhal.DeadObjectError, match="did not answer within 0 s"):
        await nnhal.aio.connect(timeout=0)
    assert [exists(service) for service in started] == [False, False]


async def test_it_may_fail_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_BACKENDS", '["NoSuchBackend"]')
    with pytest.raises(nnhal.DeadObjectError, match="there is no backend 'NoSuchBackend'"):
        nnhal.connect()
    with pytest.raises(nnhal.DeadObjectError, match="there is no backend 'NoSuchBackend'"):
        await nnhal.aio.connect()


async def test_who_is_cancelled_while_it_starts_leaves_nothing_running(started: list[EmbeddedService]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await nnhal.aio.connect()
    until = time.monotonic() + 30
    while not started or exists(started[0]):
        assert time.monotonic() < until, "the service is still there" if started else "it never started"
        await asyncio.sleep(0.05)


def test_a_service_that_died_is_closed_without_an_error(started: list[EmbeddedService]) -> None:
    with nnhal.connect() as device:
        os.kill(started[0].pid, 9)
        until = time.monotonic() + 10
        with pytest.raises(nnhal.DeadObjectError):
            while time.monotonic() < until:
                device.backends()
