"""Relay of a Unix socket: it knows the user of each connection, and refuses others."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nnhal_service.operating.admin.relay import LocalRelay
from tests.concurrency import wait_until


@pytest.fixture
def outer(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "outer"))
        listener.listen()
        yield listener


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "inner"))
        listener.listen()
        yield listener


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(str(path))
    return connection


def test_bytes_pass_both_ways_and_the_user_is_known(outer: socket.socket, inner: socket.socket, tmp_path: Path) -> None:
    relay = LocalRelay(outer, str(tmp_path / "inner"), {os.getuid()}, lambda user: None)
    with closing(relay), connect(tmp_path / "outer") as client:
        server, name = inner.accept()
        peer = "unix-abstract:" + os.fsdecode(name[1:])
        with server:
            assert relay.user(peer) == os.getuid()
            client.sendall(b"request")
            assert server.recv(100) == b"request"
            server.sendall(b"response")
            assert client.recv(100) == b"response"
        assert client.recv(100) == b""
        assert wait_until(lambda: relay.user(peer) is None, 60)
    assert relay.user("unix:") is None


def test_other_users_are_refused(outer: socket.socket, inner: socket.socket, tmp_path: Path) -> None:
    refused = threading.Event()
    users: list[int] = []

    def note(user: int) -> None:
        users.append(user)
        refused.set()

    relay = LocalRelay(outer, str(tmp_path / "inner"), {os.getuid() + 1}, note)
    with closing(relay), connect(tmp_path / "outer") as client:
        assert client.recv(100) == b""
        assert refused.wait(60) and users == [os.getuid()]
