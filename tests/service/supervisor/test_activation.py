"""Services on sockets that a service manager has opened, and their messages to it."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal_service.settings import Settings
from nnhal_service.supervisor.activation import receive_sockets, with_sockets
from tests.concurrency import wait_until
from tests.end_to_end.support.models import ADD
from tests.end_to_end.support.service_process import worker_pids
from tests.service.supervisor.activated_service import ActivatedService, start_activated

FIRST = 900
"""Descriptor that nothing else in this process uses."""
ONES = np.ones(2, np.float32)


def execute(target: str) -> None:
    with nnhal.connect(target, timeout=60) as device, device.prepare(ADD).result(60) as prepared:
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], ONES + ONES)


@pytest.fixture
def tcp() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def unix(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen(64)
        yield server


def running(service: ActivatedService) -> str:
    assert service.process.poll() is None
    return service.log.read_text()


def test_sockets_are_received_by_address(tcp: socket.socket, unix: socket.socket) -> None:
    for place, server in enumerate((tcp, unix)):
        os.dup2(server.fileno(), FIRST + place)
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b", "HOME": "/"}
    received = receive_sockets(environment, FIRST)
    try:
        assert list(received) == [f"127.0.0.1:{tcp.getsockname()[1]}", f"unix:{unix.getsockname()}"]
        assert environment == {"HOME": "/"}
        assert not any(each.getblocking() or os.get_inheritable(each.fileno()) for each in received.values())
    finally:
        for each in received.values():
            each.close()


def test_sockets_of_another_process_are_ignored() -> None:
    assert receive_sockets({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) == {}
    assert receive_sockets({}) == {}


def test_descriptors_that_do_not_listen_are_refused() -> None:
    with socket.socket() as silent:
        os.dup2(silent.fileno(), FIRST)
    with pytest.raises(ValueError, match=f"descriptor {FIRST} .* is not a listening stream socket"):
        receive_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}, FIRST)


def test_sockets_replace_the_default_address_only(tcp: socket.socket) -> None:
    sockets = {"10.0.0.1:1": tcp}
    assert with_sockets(Settings(), sockets).listen == ("10.0.0.1:1",)
    assert with_sockets(Settings(listen=("127.0.0.1:2", "10.0.0.1:1")), sockets).listen == ("10.0.0.1:1", "127.0.0.1:2")
    assert with_sockets(Settings(), {}).listen == Settings().listen


@pytest.mark.slow
def test_service_manager_starts_reloads_and_stops_a_service(
    tmp_path: Path, tcp: socket.socket, unix: socket.socket
) -> None:
    target, local = f"127.0.0.1:{tcp.getsockname()[1]}", f"unix:{unix.getsockname()}"
    with start_activated(tmp_path, [tcp, unix], "--workers", "2") as service:
        with socket.create_connection(tcp.getsockname(), 60) as early:
            service.wait_for("READY=1")
            early.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            assert early.recv(9)  # a connection waits until the service has started
        with nnhal.connect(local, timeout=60), nnhal.connect(local, timeout=60):
            assert wait_until(lambda: running(service).count("session-opened") == 2, 60)
            opened = re.findall(r" session-opened .* worker=(\d+)", running(service))
            assert sorted(opened) == ["0", "1"]
            service.wait_for("STATUS=workers that serve: 2, sessions: 2")
        assert set(running(service).splitlines()) >= {f"listening on {target}", f"listening on {local}"}
        execute(target)

        old = worker_pids(service.process.pid)
        service.process.send_signal(signal.SIGHUP)
        service.wait_for("RELOADING=1")
        service.wait_for("READY=1")
        assert not set(old) & set(worker_pids(service.process.pid))
        assert "reload-needs-restart" not in running(service)
        execute(target)
        execute(local)
        service.wait_for("WATCHDOG=1")
        assert service.stop() == 0, service.log.read_text()


@pytest.mark.slow
def test_connections_wait_for_the_next_service(tmp_path: Path, tcp: socket.socket) -> None:
    target = f"127.0.0.1:{tcp.getsockname()[1]}"
    with start_activated(tmp_path, [tcp]) as service:
        service.wait_for("READY=1")
        assert service.stop() == 0, service.log.read_text()
        service.wait_for("STOPPING=1")
    (tmp_path / "notify").unlink()
    with socket.create_connection(tcp.getsockname()), start_activated(tmp_path, [tcp]) as service:
        execute(target)


def test_socket_of_another_kind_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(str(tmp_path / "datagrams"))
        with start_activated(tmp_path, [datagrams]) as service:
            assert service.process.wait(60) == 2
            assert "is not a listening stream socket" in service.log.read_text()
