"""Addresses of the admin process: their names, their rights, and sockets that services have left."""

import os
import socket
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nnhal_service.settings import Settings
from nnhal_service.supervisor.admin.admin_listener import AdminListener

TCP, UNIX = ("127.0.0.1:50051",), ("unix:/run/nnhal.sock",)


def listener(folder: Path, addresses: tuple[str, ...] = TCP, **settings: Any) -> AdminListener:
    return AdminListener(Settings(state_dir=folder / "state", **settings), addresses)


@pytest.mark.parametrize(("addresses", "name"), [(TCP, "admin-50051.sock"), (UNIX, "admin-nnhal.sock")])
def test_default_is_private_and_named_after_the_service(tmp_path: Path, addresses: tuple[str, ...], name: str) -> None:
    path = tmp_path / "state" / name
    with closing(listener(tmp_path, addresses)) as found:
        assert found.address == f"unix:{path}" and list(found.sockets) == ["admin"]
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert not path.exists()


def test_socket_of_a_dead_service_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "state" / "admin-50051.sock"))
    with closing(listener(tmp_path)) as found:
        assert found.address.endswith("/admin-50051.sock")


def test_socket_of_a_living_service_stays(tmp_path: Path) -> None:
    with closing(listener(tmp_path)) as first, closing(listener(tmp_path)) as second:
        assert second.address.endswith(f"/admin-50051-{os.getpid()}.sock")
        with pytest.raises(ValueError, match=r"--admin-listen .*: Address already in use"):
            listener(tmp_path, admin_listen=first.address)
    assert not list((tmp_path / "state").glob("*.sock"))


def test_socket_with_the_name_of_another_one_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "state" / "admin-50051.sock"
    with closing(listener(tmp_path)):
        path.unlink()
        path.write_text("of another program")
    assert path.exists()


def test_without_an_administration(tmp_path: Path) -> None:
    with closing(listener(tmp_path, admin_listen="none")) as found:
        assert (found.address, found.tcp, found.http, found.sockets) == ("", "", "", {})


def test_default_that_cannot_be_bound_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a folder")
    with closing(listener(tmp_path)) as found:
        assert found.address == "" and found.sockets == {}


def test_tcp_address_does_not_replace_the_default(tmp_path: Path) -> None:
    with closing(listener(tmp_path, admin_listen="127.0.0.1:0")) as found:
        assert found.tcp.startswith("127.0.0.1:") and list(found.sockets) == ["tcp", "admin"]


def test_http_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"--http-listen {address}: Address already in use"):
            listener(tmp_path, http_listen=address)
    assert not list((tmp_path / "state").glob("*.sock"))
