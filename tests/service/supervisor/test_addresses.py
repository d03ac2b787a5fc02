"""Addresses: they are reserved for a service, shared by its workers, and free afterwards."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnhal_service.supervisor.addresses import ReservedAddresses


def listen(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_one_worker_has_no_private_address(tmp_path: Path) -> None:
    addresses = ReservedAddresses(["127.0.0.1:0", f"unix:{tmp_path}/s"], 1)
    tcp, unix = addresses.shared
    assert unix == f"unix:{tmp_path}/s" and not tcp.endswith(":0")
    worker = addresses.of_worker(0)
    assert (worker.listen, worker.port, worker.unix) == ((tcp, unix), 0, unix)
    addresses.close()


def test_workers_share_the_port_and_have_one_each(tmp_path: Path) -> None:
    addresses = ReservedAddresses(["127.0.0.1:0", f"unix:{tmp_path}/s"], 2)
    tcp, unix = addresses.shared
    first, second = addresses.of_worker(0), addresses.of_worker(1)
    assert first.listen == (tcp, f"127.0.0.1:{first.port}", f"{unix}.0")
    assert second.listen == (tcp, f"127.0.0.1:{second.port}", f"{unix}.1")
    assert first.port != second.port and second.for_redirect(1, second.port, is_local=True) == f"{unix}.1"
    addresses.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_of_one_client_has_private_addresses_only(tmp_path: Path, workers: int) -> None:
    addresses = ReservedAddresses(["127.0.0.1:0", f"unix:{tmp_path}/s"], workers)
    _, unix = addresses.shared
    private = addresses.of_worker(64)
    assert private.listen == (f"127.0.0.1:{private.port}", f"{unix}.64")
    assert addresses.of_worker(64) is private
    addresses.close()
    assert not list(tmp_path.iterdir())


def test_reserved_port_is_not_taken_and_free_later() -> None:
    addresses = ReservedAddresses(["127.0.0.1:0"], 1)
    port = int(addresses.shared[0].rpartition(":")[2])
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with listen(port):  # a worker shares it
        pass
    addresses.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_port_of_another_service_is_refused() -> None:
    with listen(0) as other:
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen on 127.0.0.1:{port}: address already in use; is another"):
            ReservedAddresses([f"127.0.0.1:{port}"], 1)


def test_live_unix_socket_is_refused_and_a_stale_one_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ValueError, match="address already in use"):
            ReservedAddresses([f"unix:{path}"], 1)
    ReservedAddresses([f"unix:{path}"], 1).close()
    assert os.listdir(tmp_path) == []


def test_sockets_of_dead_workers_are_removed(tmp_path: Path) -> None:
    addresses = ReservedAddresses([f"unix:{tmp_path}/s"], 2)
    for name in ("s.0", "s.1"):
        with socket.socket(socket.AF_UNIX) as worker:
            worker.bind(str(tmp_path / name))
    addresses.lead_to([1])
    addresses.close()
    assert os.listdir(tmp_path) == []


@contextmanager
def unix_worker(path: Path) -> Iterator[socket.socket]:
    """Listen on a path, in place of a worker that did so before."""
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(10)
        server.bind(f"{path}.temporary")
        server.listen()
        Path(f"{path}.temporary").rename(path)
        yield server


def reaches(path: Path, server: socket.socket) -> bool:
    """Return whether a client that connects to a path is accepted by a server."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        try:
            accepted, _ = server.accept()
        except TimeoutError:
            return False
        accepted.close()
        return True


def test_shared_path_leads_to_a_worker_that_serves(tmp_path: Path) -> None:
    path = tmp_path / "s"
    addresses = ReservedAddresses([f"unix:{path}"], 2)
    addresses.lead_to([])
    with unix_worker(Path(f"{path}.1")) as second:
        addresses.lead_to([1])
        assert reaches(path, second)
        with unix_worker(Path(f"{path}.0")) as first:
            addresses.lead_to([0, 1])
            assert reaches(path, second), "it stays as long as its worker serves"
            addresses.lead_to([0])
            assert reaches(path, first)
            with unix_worker(Path(f"{path}.0")) as successor:
                addresses.lead_to([0, 1])
                assert reaches(path, successor)
        addresses.lead_to([])
        addresses.lead_to([1])
        assert reaches(path, second)
    addresses.lead_to([0])  # which does not listen yet
    addresses.close()
    assert os.listdir(tmp_path) == []


def test_folder_of_a_shared_path_may_be_gone(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    addresses = ReservedAddresses([f"unix:{tmp_path}/folder/s"], 2)
    shutil.rmtree(tmp_path / "folder")
    addresses.lead_to([0, 1])
    addresses.close()


def test_unix_path_stays_reserved_while_no_worker_listens(tmp_path: Path) -> None:
    """Two services cannot take one path, not even between the end of a worker and the start of the next one."""
    first = ReservedAddresses([f"unix:{tmp_path}/s"], 2)
    for path in (f"{tmp_path}/s", f"{tmp_path}/s.0", f"{tmp_path}/s.1"):
        with pytest.raises(ValueError, match=f"cannot listen on unix:{path}: address already in use; is another"):
            ReservedAddresses([f"unix:{path}"], 1)
    first.close()
    ReservedAddresses([f"unix:{tmp_path}/s"], 2).close()
    assert list(tmp_path.iterdir()) == []


def test_lock_of_a_service_that_was_killed_is_taken(tmp_path: Path) -> None:
    (tmp_path / "s.lock").touch()
    ReservedAddresses([f"unix:{tmp_path}/s"], 1).close()
    assert list(tmp_path.iterdir()) == []
