"""Connections that say nothing: they end, and leave descriptors and memory to clients that work."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from nnhal.v1 import session_pb2
from nnhal_service import server as server_module
from nnhal_service.server import CONNECTIONS_SHARE, Server
from nnhal_service.settings import Settings
from nnhal_service.supervisor.worker import _raise_descriptor_limit
from tests.end_to_end.support.raw_client import open_raw_session
from tests.end_to_end.support.service_process import start_service, stop_service

CONNECTIONS = 10


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of a service with few descriptors, of which silent connections last for 0.2 seconds."""
    limits = {resource.RLIMIT_NOFILE: (CONNECTIONS * CONNECTIONS_SHARE,) * 2}
    real = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.get(kind) or real(kind))
    monkeypatch.setattr(server_module, "HANDSHAKE_MS", 200)
    with Server(Settings(listen=("127.0.0.1:0",), backends=("CpuRef",))) as server:
        yield server.addresses[0]


def connect(target: str) -> socket.socket:
    host, _, port = target.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(60)
    return connection


def test_silent_connections_end_and_make_room(target: str) -> None:
    with open_raw_session(target) as raw, ExitStack() as stack:
        silent = [stack.enter_context(connect(target)) for _ in range(3 * CONNECTIONS)]
        assert [len(each.recv(2**16)) for each in silent][-1] == 0, "there is no room for the last one"
        raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session))  # who is connected notices nothing
        for each in silent:
            while each.recv(2**16):  # the greeting of the service, and then the end
                pass
        with open_raw_session(target) as other:
            other.sessions.Release(session_pb2.ReleaseRequest(session=other.session))


@pytest.mark.slow
def test_worker_may_have_all_descriptors(tmp_path_factory: pytest.TempPathFactory) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    try:
        service = start_service(tmp_path_factory.mktemp("descriptors"), PYTHONHASHSEED="0")  # not forked from another
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE) == (hard // 2, hard)
    assert resource.prlimit(service.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    assert stop_service(service) == 0


@pytest.mark.parametrize(("most", "warnings"), [(1024, []), (1023, ["few-descriptors"])])
def test_low_limit_of_descriptors_is_said_at_the_start(
    most: int, warnings: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, most))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: taken.append(limits))
    _raise_descriptor_limit()
    assert taken == [(most, most)] and [record.getMessage() for record in caplog.records] == warnings
