"""A cable that is pulled and put back: the session goes on; a service that was started anew: it is lost."""

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.relay import relay

X = tensor(T.TENSOR_FLOAT32, (2,))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
ONES = np.ones(2, np.float32)


def test_the_session_goes_on_after_a_break(tmp_path: Path) -> None:
    service = start(tmp_path, NNHAL_SESSION_GRACE_S="2")
    with relay(service.target) as cable, nnhal.connect(cable.target) as device:
        prepared = device.prepare(ADD).result(10)
        for _ in range(3):
            cable.cut()
            time.sleep(1.2)
            np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        time.sleep(2.5)  # longer than the grace: the stream really was opened again
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        assert service.log.read_text().count("session-opened") == 1
    stop(service)


async def test_with_asyncio_too(tmp_path: Path) -> None:
    service = start(tmp_path, NNHAL_SESSION_GRACE_S="2")
    with relay(service.target) as cable:
        async with nnhal.aio.connect(cable.target) as device:
            prepared = await device.prepare(ADD)
            cable.cut()
            await asyncio.sleep(3.5)
            np.testing.assert_array_equal((await prepared.execute([ONES, ONES]))[0], 2 * ONES)
    stop(service)


def test_a_session_that_was_away_too_long_is_lost(tmp_path: Path) -> None:
    service = start(tmp_path, NNHAL_SESSION_GRACE_S="0")
    with relay(service.target) as cable, nnhal.connect(cable.target) as device:
        prepared = device.prepare(ADD).result(10)
        cable.cut()
        time.sleep(0.5)
        with pytest.raises(nnhal.SessionLostError, match="prepare again"):
            prepared.execute([ONES, ONES])
    stop(service)


def test_a_service_started_anew_does_not_know_the_session(tmp_path: Path) -> None:
    socket = f"unix:{tmp_path}/socket"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = start(tmp_path / "a", "--listen", socket)
    with nnhal.connect(socket) as device:
        prepared = device.prepare(ADD).result(10)
        stop(first)
        second: Service = start(tmp_path / "b", "--listen", socket)
        deadline = time.monotonic() + 10
        while True:
            try:
                prepared.execute([ONES, ONES])
                pytest.fail("another service knew the session")
            except nnhal.SessionLostError:
                break
            except nnhal.DeadObjectError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        stop(second)
