"""Broken connections: the session continues within its grace time, and is lost after it or with its service."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.concurrency import wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.relay import Relay, relay
from tests.end_to_end.support.service_process import start_service, stop_service

X = tensor(T.TENSOR_FLOAT32, (2,))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
ONES = np.ones(2, np.float32)
LONG_GRACE_S = "60"
"""Grace time that does not expire during a test, however busy the machine is."""


def cut_and_wait(cable: Relay) -> None:
    """Break all connections, and wait until a client has connected again."""
    accepted = cable.accepted
    cable.cut()
    assert wait_until(lambda: cable.accepted > accepted), "no client has connected again"


def test_session_continues_after_a_break(tmp_path: Path) -> None:
    service = start_service(tmp_path, NNHAL_SESSION_GRACE_S=LONG_GRACE_S)
    with relay(service.target) as cable, nnhal.connect(cable.target) as device:
        prepared = device.prepare(ADD).result(60)
        for _ in range(3):
            cut_and_wait(cable)
            np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        assert service.log.read_text().count("session-opened") == 1
    stop_service(service)


async def test_session_of_an_asyncio_client_continues_after_a_break(tmp_path: Path) -> None:
    service = start_service(tmp_path, NNHAL_SESSION_GRACE_S=LONG_GRACE_S)
    with relay(service.target) as cable:
        async with nnhal.aio.connect(cable.target) as device:
            prepared = await device.prepare(ADD)
            await asyncio.to_thread(cut_and_wait, cable)
            np.testing.assert_array_equal((await prepared.execute([ONES, ONES]))[0], 2 * ONES)
    stop_service(service)


@pytest.mark.slow
def test_keep_alive_stream_is_opened_again(tmp_path: Path) -> None:
    """Without a new stream, the session would end when the grace time has passed."""
    grace_s = 5
    service = start_service(tmp_path, NNHAL_SESSION_GRACE_S=str(grace_s))
    with relay(service.target) as cable, nnhal.connect(cable.target) as device:
        prepared = device.prepare(ADD).result(60)
        prepared.execute([ONES, ONES])  # the call that has prepared it may not be over before
        cable.cut()
        assert not wait_until(lambda: service.logged("its connection is gone"), 2 * grace_s)
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
    stop_service(service)


def test_session_is_lost_after_its_grace_time(tmp_path: Path) -> None:
    service = start_service(tmp_path, NNHAL_SESSION_GRACE_S="0")
    with relay(service.target) as cable, nnhal.connect(cable.target) as device:
        prepared = device.prepare(ADD).result(60)
        buffer = device.allocate(outputs=[(prepared, 0)])

        def is_gone() -> bool:
            cable.cut()  # again, if the client was back before the service noticed
            return service.logged("its connection is gone")

        assert wait_until(is_gone)
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        with pytest.raises(nnhal.SessionLostError, match="lost with its session"):
            buffer.read()
    stop_service(service)


def test_restarted_service_does_not_know_the_session(tmp_path: Path) -> None:
    socket = f"unix:{tmp_path}/socket"
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = start_service(tmp_path / "first", "--listen", socket)
    with nnhal.connect(socket) as device:
        prepared = device.prepare(ADD).result(60)
        buffer = device.allocate(outputs=[(prepared, 0)])
        stop_service(first)
        second = start_service(tmp_path / "second", "--listen", socket)
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        with pytest.raises(nnhal.SessionLostError, match="lost with its session"):
            buffer.read()
        stop_service(second)
