"""Fair admission: what one identity opens leaves room for others, and so do connections that say nothing."""

import queue
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from nnhal.client.shm import data_socket
from nnhal.errors import HalError
from nnhal.v1 import burst_pb2, burst_pb2_grpc
from nnhal_service.identity.tokens import create_token
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from nnhal_service.shm.listener import UNAUTHENTICATED
from tests.end_to_end.support.raw_client import RawSession, error_detail
from tests.service.identity.callers import open_session

Open = Callable[[str], AbstractContextManager[RawSession]]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Open]:
    """Yield a function that opens a session of a client by the name of its token."""
    created = {name: create_token(name) for name in ("alice", "bob")}
    (tmp_path / "tokens").write_text("\n".join(line for _, line in created.values()))
    settings = Settings(
        listen=("127.0.0.1:0",),
        backends=("CpuRef",),
        cache_dir=tmp_path / "cache",
        state_dir=tmp_path / "state",
        tokens=tmp_path / "tokens",
        limits={"data_connections": 8, "burst_streams": 8},
    )
    with Server(settings) as server:
        yield lambda name: open_session(server.addresses[0], f"Bearer {created[name][0]}")


def connect(raw: RawSession) -> socket.socket:
    """Open a data connection."""
    return data_socket.connect(raw.opened.data_socket, raw.session, raw.opened.data_secret)


def refused_limit(raw: RawSession, stack: ExitStack) -> tuple[int, str]:
    """Open data connections until the service refuses one. Return their number, and the limit that it names."""
    for number in range(100):
        try:
            stack.enter_context(connect(raw))
        except HalError as error:
            return number, error.limit
    raise AssertionError("no connection is refused")


def test_an_identity_leaves_data_connections_to_others(service: Open) -> None:
    with service("alice") as alice, service("bob") as bob, ExitStack() as stack:
        assert refused_limit(alice, stack) == (6, "data_connections")
        assert refused_limit(alice, stack) == (0, "data_connections")
        assert refused_limit(bob, stack) == (2, "data_connections")


def test_silent_data_connections_keep_no_client_out(service: Open) -> None:
    with service("alice") as alice, ExitStack() as stack:
        silent = []
        for _ in range(3 * UNAUTHENTICATED):
            silent.append(stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)))
            silent[-1].connect("\0" + alice.opened.data_socket[1:])
        stack.enter_context(connect(alice))
        assert silent[0].recv(1) == b"", "the oldest one is closed"


@contextmanager
def open_stream(raw: RawSession) -> Iterator[None]:
    """Open a stream that has answered a call, which fails, for the duration of a `with` block."""
    requests: queue.SimpleQueue[burst_pb2.BurstStreamRequest | None] = queue.SimpleQueue()
    responses = burst_pb2_grpc.BurstStub(raw.channel).Stream(iter(requests.get, None))
    release = burst_pb2.ReleaseMemoryResourceRequest(session=raw.session, burst=bytes(16))
    requests.put(burst_pb2.BurstStreamRequest(release=release))
    try:
        next(responses)
        yield
    finally:
        requests.put(None)
        responses.cancel()


def refused_stream(raw: RawSession, stack: ExitStack) -> tuple[int, str]:
    """Open streams until the service refuses one. Return their number, and the limit that it names."""
    for number in range(100):
        try:
            stack.enter_context(open_stream(raw))
        except grpc.RpcError as error:
            return number, error_detail(error).limit
    raise AssertionError("no stream is refused")


def test_an_identity_leaves_burst_streams_to_others(service: Open) -> None:
    with service("alice") as alice, service("bob") as bob, ExitStack() as stack:
        assert refused_stream(alice, stack) == (6, "burst_streams")
        assert refused_stream(bob, stack) == (2, "burst_streams")
