"""Users of local sockets: those that the kernel reports for listening and connected sockets."""

import os
import socket
from pathlib import Path

import pytest

from nnhal.address import Address
from nnhal.local_users import connected_user, listening_user, socket_user


@pytest.mark.parametrize(
    ("family", "bound", "host"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "localhost"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),  # gRPC listens so
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_tcp(family: socket.AddressFamily, bound: str, host: str) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((bound, 0))
        except OSError as error:
            pytest.skip(f"the machine has no such address: {error}")
        address = Address("tcp", host, listener.getsockname()[1])
        assert listening_user(address) is None
        listener.listen()
        assert listening_user(address) == os.geteuid()
        with socket.create_connection(("127.0.0.1", address.port)) as client:
            assert connected_user(client.getsockname(), client.getpeername()) == os.geteuid()
            assert connected_user(client.getsockname(), ("127.0.0.1", 1)) is None
    assert listening_user(address) is None


def test_unix(tmp_path: Path) -> None:
    address = Address("unix", path=str(tmp_path / "socket"))
    assert listening_user(address) is None
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(address.path)
        listener.listen()
        assert listening_user(address) == os.geteuid()
        client.connect(address.path)
        assert socket_user(client) == os.geteuid()
    (tmp_path / "file").touch()
    assert listening_user(Address("unix", path=str(tmp_path / "file"))) is None
