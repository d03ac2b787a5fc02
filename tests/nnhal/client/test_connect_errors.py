"""Errors of `connect`, of both clients, against real sockets: the cause, at once and in one line."""

import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

import nnhal
from tests.nnhal.unix_sockets import needs_unix_sockets
from tests.other_server import listening

Connect = Callable[[str, float], Awaitable[None]]
START_A_SERVICE = "is the service running? start one with `nnhal serve`"
IMMEDIATE_S = 5.0
"""Largest duration of an attempt that fails at once. It takes milliseconds, but machines may be busy."""
TIMEOUT_S = 30.0
"""Timeout of attempts that must fail at once."""


async def connect_sync(target: str, timeout: float) -> None:
    nnhal.connect(target, timeout=timeout).close()


async def connect_async(target: str, timeout: float) -> None:
    await (await nnhal.aio.connect(target, timeout=timeout)).close()


@pytest.fixture(params=[connect_sync, connect_async])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Return the `connect` of each client."""
    function: Connect = request.param
    return function


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def failure_of(connect: Connect, target: str) -> nnhal.HalError:
    """Return the error of an attempt to connect, which must come at once."""
    start = time.monotonic()
    with pytest.raises(nnhal.HalError) as caught:
        await connect(target, TIMEOUT_S)
    assert time.monotonic() - start < IMMEDIATE_S
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_refused_connection(connect: Connect, host: str) -> None:
    target = f"{host}:{free_port()}"
    error = await failure_of(connect, target)
    assert isinstance(error, nnhal.DeadObjectError) and error.status == nnhal.ErrorStatus.DEVICE_UNAVAILABLE
    assert error.reason.startswith(f"no response from {target}: ")
    if host != "[::1]":  # some machines have no IPv6
        assert error.reason == f"no response from {target}: connection refused; {START_A_SERVICE}"


@needs_unix_sockets
async def test_missing_unix_socket(connect: Connect, tmp_path: Path) -> None:
    target = f"unix:{tmp_path}/missing"
    error = await failure_of(connect, target)
    assert error.reason == f"no response from {target}: there is no such socket; {START_A_SERVICE}"


@needs_unix_sockets
async def test_stale_unix_socket(connect: Connect, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/stale")
    error = await failure_of(connect, f"unix:{tmp_path}/stale")
    assert error.reason == f"no response from unix:{tmp_path}/stale: connection refused; {START_A_SERVICE}"


async def test_unknown_host(connect: Connect) -> None:
    error = await failure_of(connect, "no-such-host.invalid:50051")
    assert error.reason.startswith("no response from no-such-host.invalid:50051: the host name cannot be resolved (")


@pytest.mark.parametrize(
    "target", ["", "localhost", "localhost:", ":50051", "http://localhost:50051", "a b:1", "unix:", "unix:" + 200 * "x"]
)
async def test_invalid_address(connect: Connect, target: str) -> None:
    error = await failure_of(connect, target)
    assert error.status == nnhal.ErrorStatus.INVALID_ARGUMENT
    assert repr(target) in error.reason


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.0 400 Bad Request\r\n\r\n", None])
async def test_server_of_another_protocol(connect: Connect, greeting: bytes | None) -> None:
    with listening(greeting) as target:
        error = await failure_of(connect, target)
    assert isinstance(error, nnhal.DeadObjectError)
    assert error.reason.startswith(f"no gRPC service responds at {target} (")


async def test_grpc_server_of_another_service(connect: Connect) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        error = await failure_of(connect, target)
    finally:
        server.stop(0).wait()
    assert error.reason == f"{target} is a gRPC service, but not one of nnhal"


async def test_silent_server(connect: Connect) -> None:
    with (
        listening(b"", answers=False) as target,
        pytest.raises(nnhal.DeadObjectError, match=f"no response from {target} within 0.2 s, though a connection"),
    ):
        await connect(target, 0.2)


async def test_service_that_starts_later_is_found(connect: Connect) -> None:
    """A failed attempt does not delay the next one: it leaves no channel in back-off."""
    port = free_port()
    with pytest.raises(nnhal.DeadObjectError, match="connection refused"):
        await connect(f"127.0.0.1:{port}", TIMEOUT_S)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        error = await failure_of(connect, f"127.0.0.1:{port}")
    finally:
        server.stop(0).wait()
    assert "not one of nnhal" in error.reason


def test_errors_log_nothing(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, nnhal\n"
        "async def connect(target): await nnhal.aio.connect(target, timeout=5)\n"
        "for target in sys.argv[1:]:\n"
        "    try: nnhal.connect(target, timeout=5)\n"
        "    except nnhal.HalError: print('failed')\n"
        "    try: asyncio.run(connect(target))\n"
        "    except nnhal.HalError: print('failed')"
    )
    invalid = ["", "http://x:1", f"unix:{tmp_path}/{'x' * 200}"]
    with listening(b"SSH-2.0-OpenSSH_9.2\r\n") as other:
        targets = [*invalid, "no-such-host.invalid:1", f"127.0.0.1:{free_port()}", f"unix:{tmp_path}/missing", other]
        finished = subprocess.run([sys.executable, "-c", code, *targets], capture_output=True, text=True, check=True)
    assert (finished.stdout.split(), finished.stderr) == (["failed"] * 2 * len(targets), "")
