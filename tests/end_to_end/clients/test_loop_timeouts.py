"""Executions with a loop timeout, by both clients."""

from collections.abc import Iterator

import numpy as np
import pytest

import nnhal
import nnhal.aio
from tests.end_to_end.support.endless_executions import ENDLESS, FOREVER
from tests.end_to_end.support.service_process import Service

FIVE_TURNS = [np.zeros(1, np.float32), np.full(1, 5, np.float32)]


@pytest.fixture(scope="module")
def device(service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target) as connected:
        yield connected


def test_the_loop_timeout_ends_an_endless_loop(device: nnhal.Device) -> None:
    with (
        device.prepare(FOREVER).result() as prepared,
        pytest.raises(nnhal.HalError, match="the loop timeout of 1 ms has passed"),
    ):
        prepared.execute(ENDLESS, loop_timeout=0.001)


def test_a_loop_that_ends_in_time_has_its_result(device: nnhal.Device) -> None:
    with device.prepare(FOREVER).result() as prepared:
        expected = prepared.execute(FIVE_TURNS)
        outputs = prepared.execute(FIVE_TURNS, loop_timeout=15, measure_timing=True)
    assert [output.tolist() for output in outputs] == [output.tolist() for output in expected]
    assert outputs.timing.time_in_driver_ns > 0


def test_a_loop_can_write_to_a_buffer(device: nnhal.Device) -> None:
    with (
        device.prepare(FOREVER).result() as prepared,
        device.allocate(outputs=[(prepared, 0)]) as buffer,
    ):
        prepared.execute(FIVE_TURNS, outputs={0: buffer}, loop_timeout=15)
        assert buffer.read().tolist() == prepared.execute(FIVE_TURNS)[0].tolist()
        with pytest.raises(nnhal.HalError, match="the loop timeout of 1 ms has passed"):
            prepared.execute(ENDLESS, outputs={0: buffer}, loop_timeout=0.001)


def test_a_wrong_loop_timeout_is_rejected(device: nnhal.Device) -> None:
    with device.prepare(FOREVER).result() as prepared:
        with pytest.raises(nnhal.HalError, match="loop_timeout is inf"):
            prepared.execute(FIVE_TURNS, loop_timeout=float("inf"))
        with pytest.raises(nnhal.HalError, match="loop timeout"):
            prepared.execute(FIVE_TURNS, loop_timeout=16)


async def test_the_asyncio_client_has_loop_timeouts_too(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device, await device.prepare(FOREVER) as prepared:
        with pytest.raises(nnhal.HalError, match="the loop timeout of 1 ms has passed"):
            await prepared.execute(ENDLESS, loop_timeout=0.001)
