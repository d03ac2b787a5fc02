"""Redirects of new sessions, with both clients: followed once, and ignored if they lead nowhere."""

import socket
from pathlib import Path
from threading import Timer

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.nnhal.client.opened_session import Session, both_clients
from tests.other_server import listening
from tests.redirecting_server import redirecting

X = tensor(T.TENSOR_FLOAT32, (2,))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
ONES = np.ones(2, np.float32)


@both_clients
async def test_redirect_is_followed_once(session: Session) -> None:
    with redirecting() as last, redirecting(last.target) as second, redirecting(second.target) as first:
        assert await session(first.target) == second.target
        assert [request.accept_redirect for request in first.requests] == [True]
        assert [request.accept_redirect for request in second.requests] == [False]
        assert not last.requests


@both_clients
async def test_redirect_to_a_port_of_the_same_host(session: Session) -> None:
    with redirecting() as second, redirecting(":" + second.target.rpartition(":")[2]) as first:
        assert await session(first.target) == second.target


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@both_clients
@pytest.mark.parametrize("address", ["nonsense", ":x", "unix:/no/such/socket", "http://localhost:1", ""])
async def test_wrong_redirect_is_ignored(session: Session, address: str) -> None:
    with redirecting(address) as first:
        assert await session(first.target) == first.target
        assert [request.accept_redirect for request in first.requests] == ([True, False] if address else [True])


@both_clients
async def test_unreachable_redirect_is_ignored(session: Session) -> None:
    with redirecting(f":{free_port()}") as first:
        assert await session(first.target) == first.target


@both_clients
@pytest.mark.parametrize("answers", [True, False])
async def test_redirect_to_another_kind_of_server_is_ignored(session: Session, answers: bool) -> None:
    with listening(b"SSH-2.0-OpenSSH_9.2\r\n", answers=answers) as other, redirecting(other) as first:
        assert await session(first.target) == first.target


@both_clients
async def test_worker_that_ended_after_the_redirect_is_replaced(session: Session) -> None:
    """The service refuses the client, because it needs a worker of its own, until it redirects to the next one."""
    with redirecting() as worker, redirecting(f":{free_port()}") as first:
        first.refuses = True
        refused = Timer(0.3, setattr, (first, "redirect", worker.target))
        refused.start()
        assert await session(first.target) == worker.target
        refused.join()
        accepted = [request.accept_redirect for request in first.requests]
        assert accepted == [True, False] * (len(accepted) // 2) + [True] and len(accepted) >= 3


@both_clients
async def test_redirect_in_a_circle_ends(session: Session) -> None:
    with redirecting(always=True) as second, redirecting(second.target) as first:
        second.redirect = first.target
        assert await session(first.target) == first.target


@both_clients
async def test_service_that_always_redirects(session: Session) -> None:
    with redirecting(f":{free_port()}", always=True) as first:
        with pytest.raises(nnhal.HalError, match=f"{first.target} did not open a session, but sent .* redirect"):
            await session(first.target)
        assert len(first.requests) == 2


def test_calls_and_tensors_go_where_the_session_is(tmp_path: Path) -> None:
    """Also the data socket, and a session that is opened again after its service has died."""
    folder = tmp_path / "redirected"
    folder.mkdir()
    service = start_service(folder, "--backends", "CpuRef")
    with redirecting(service.target) as first, nnhal.connect(first.target, timeout=60) as device:
        prepared = device.prepare(ADD, cache=True).result(60)
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        with prepared.burst() as burst:
            np.testing.assert_array_equal(burst.execute([ONES, ONES])[0], 2 * ONES)
        assert device._connection.shm is not None and device._connection.shm._pool._idle
        service.process.kill()
        stop_service(service)
        service = start_service(folder, "--backends", "CpuRef")
        first.redirect = service.target
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        assert [request.accept_redirect for request in first.requests] == [True, True]
    assert stop_service(service) == 0
