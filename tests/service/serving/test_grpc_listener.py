"""Addresses of services: what is in use is not taken, and only an own socket is removed."""

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from nnhal.probe import connection_problem
from nnhal_service.serving.grpc_listener import Listener


@pytest.fixture
def server() -> Iterator[grpc.Server]:
    """Yield a gRPC server without services or addresses."""
    running = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    yield running
    running.stop(0).wait()


@pytest.fixture
def no_log(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Check that gRPC logs nothing during the test."""
    yield
    assert capfd.readouterr().err == ""


def live_socket(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_unix_socket(server: grpc.Server, tmp_path: Path) -> None:
    listener = Listener(server, f"unix:{tmp_path}/socket")
    server.start()
    assert listener.address == f"unix:{tmp_path}/socket"
    assert connection_problem(listener.address) is None
    assert os.listdir(tmp_path) == ["socket"]
    server.stop(0).wait()
    listener.remove_socket()
    assert os.listdir(tmp_path) == []


def test_live_unix_socket_is_not_taken(server: grpc.Server, tmp_path: Path, no_log: None) -> None:
    target = f"unix:{tmp_path}/socket"
    with live_socket(tmp_path / "socket"):
        with pytest.raises(ValueError, match=f"cannot listen on {target}: address already in use; is another service"):
            Listener(server, target)
        server.stop(0).wait()
        assert connection_problem(target) is None
    assert os.listdir(tmp_path) == ["socket"]


def test_stale_unix_socket_is_replaced(server: grpc.Server, tmp_path: Path) -> None:
    live_socket(tmp_path / "socket").close()
    Listener(server, f"unix:{tmp_path}/socket")
    server.start()
    assert connection_problem(f"unix:{tmp_path}/socket") is None


def test_socket_of_another_service_is_not_removed(server: grpc.Server, tmp_path: Path) -> None:
    listener = Listener(server, f"unix:{tmp_path}/socket")
    server.start()
    (tmp_path / "socket").rename(tmp_path / "moved")
    with live_socket(tmp_path / "socket"):
        server.stop(0).wait()
        listener.remove_socket()
        assert connection_problem(f"unix:{tmp_path}/socket") is None


def test_file_that_is_not_a_socket_is_kept(server: grpc.Server, tmp_path: Path, no_log: None) -> None:
    (tmp_path / "file").write_text("data")
    with pytest.raises(ValueError, match="the path exists and is not a socket"):
        Listener(server, f"unix:{tmp_path}/file")
    assert (tmp_path / "file").read_text() == "data"
    assert os.listdir(tmp_path) == ["file"]


def test_missing_folder(server: grpc.Server, no_log: None) -> None:
    with pytest.raises(ValueError, match="cannot listen on unix:/nowhere/at/all: no such file or directory"):
        Listener(server, "unix:/nowhere/at/all")


def test_port_in_use(server: grpc.Server, no_log: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        target = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"cannot listen on {target}: address already in use; is another service"):
            Listener(server, target)


def test_address_of_another_machine(server: grpc.Server, no_log: None) -> None:
    with pytest.raises(ValueError, match=r"cannot listen on 192\.0\.2\.1:0: cannot assign requested address"):
        Listener(server, "192.0.2.1:0")
    with pytest.raises(ValueError, match=r"cannot listen on no-such-host\.invalid:0: name or service not known"):
        Listener(server, "no-such-host.invalid:0")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_free_port_is_chosen(server: grpc.Server, host: str) -> None:
    listener = Listener(server, f"{host}:0")
    server.start()
    assert listener.address != f"{host}:0"
    assert connection_problem(listener.address) is None
    listener.remove_socket()
