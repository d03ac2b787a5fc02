"""Other users of the machine: they can neither take the address of a dead service over, nor use its cache."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal import HalError, ModelBuilder
from nnhal.client.core.session import Transport
from nnhal.types import Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import Service, start_service, stop_service

STRANGER = 65534
ROOT = Path(__file__).parents[3]
X = np.arange(4, dtype=np.float32)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process of another user")


def _adding() -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [4])
    b.output(b.add(Op.ADD, x, X, 0, output=x.description))
    return b.build()


MODEL = _adding()


class Squatter:
    """Process of another user that takes an address as soon as it is free."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, "-P", "-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); "]
        command[-1] += "from tests.end_to_end.support.squatter import main; main(int(sys.argv[1]), sys.argv[2])"
        command += [str(ROOT), str(STRANGER), address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")

    def expect(self, line: str) -> None:
        """Wait for a line of the output."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line + "\n"

    def received(self) -> list[str]:
        """Stop, and return what clients have sent."""
        output, _ = self._process.communicate(timeout=60)
        found: list[str] = json.loads(output)
        return found

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def squatting(address: str) -> Iterator[Squatter]:
    squatter = Squatter(address)
    try:
        yield squatter
    finally:
        squatter.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = start_service(tmp_path, "--backends", "CpuRef")
    yield service
    stop_service(service)


def kill(service: Service) -> None:
    """Kill the service with its workers."""
    workers = [service.pid]
    service.process.kill()
    service.process.wait(60)
    for pid in workers:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc", "auto"])
def test_client_does_not_follow_another_user(service: Service, transport: Transport) -> None:
    with (
        nnhal.connect(service.target, transport=transport, timeout=30) as device,
        squatting(service.target) as squatter,
    ):
        cached, plain = (device.prepare(MODEL, cache=use).result(60) for use in (True, False))
        for prepared in (cached, plain):
            assert prepared.execute([X])[0].tolist() == (2 * X).tolist()
        kill(service)
        squatter.expect("listening")
        assert wait_until(lambda: device._connection._broken is not None)  # the end of the session has been noticed
        for _ in range(3):
            with pytest.raises(HalError, match=f"user {STRANGER} listens at .*, where user 0 ran the service"):
                cached.execute([X])
            with pytest.raises(HalError):
                plain.execute([X])
            with pytest.raises(HalError, match=f"user {STRANGER}"):
                device.prepare(MODEL, cache=True).result(60)
        assert squatter.received() == []


@pytest.mark.slow
async def test_asyncio_client_does_not_follow_another_user(service: Service) -> None:
    async with nnhal.aio.connect(service.target, transport="grpc", timeout=30) as device:
        with squatting(service.target) as squatter:
            cached, plain = [await device.prepare(MODEL, cache=use) for use in (True, False)]
            for prepared in (cached, plain):
                assert (await prepared.execute([X]))[0].tolist() == (2 * X).tolist()
            kill(service)
            await asyncio.to_thread(squatter.expect, "listening")
            assert await asyncio.to_thread(wait_until, lambda: device._connection._broken is not None)
            for _ in range(3):
                with pytest.raises(HalError, match=f"user {STRANGER} listens at .*, where user 0 ran the service"):
                    await cached.execute([X])
                with pytest.raises(HalError):
                    await plain.execute([X])
            assert squatter.received() == []


@pytest.mark.slow
def test_client_shares_no_memory_with_another_user(service: Service) -> None:
    """The name of the data socket is free for a moment, because its process has died."""
    names = set(re.findall(r"@nnhal-\w+", Path("/proc/net/unix").read_text()))
    with nnhal.connect(service.target) as device:
        prepared = device.prepare(MODEL).result(60)
        device._session._timeout = 2  # only now: a busy service may need longer to respond
        opened = device._connection.shm.factory._opened  # type: ignore[union-attr]
        assert opened.data_socket in names
        with squatting(opened.data_socket) as squatter:
            kill(service)
            squatter.expect("listening")
            for _ in range(2):
                with pytest.raises(HalError):
                    prepared.execute([X])
            assert squatter.received() == []


@pytest.mark.slow
def test_client_continues_with_the_same_user(service: Service, tmp_path: Path) -> None:
    with nnhal.connect(service.target, timeout=60) as device:
        with squatting(service.target) as squatter:
            prepared = device.prepare(MODEL, cache=True).result(60)
            kill(service)
            squatter.expect("listening")
            assert wait_until(lambda: device._connection._broken is not None)
            with pytest.raises(HalError, match=f"user {STRANGER}"):
                prepared.execute([X])
            assert squatter.received() == []
        again = start_service(tmp_path, "--backends", "CpuRef", "--listen", service.target)
        try:
            assert prepared.execute([X])[0].tolist() == (2 * X).tolist()
        finally:
            stop_service(again)


def test_unix_socket_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        os.chown(path, STRANGER, STRANGER)
        with pytest.raises(HalError, match=f"the socket at unix:{path} belongs to user {STRANGER}; expected 0 "):
            nnhal.connect(f"unix:{path}", timeout=5)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        monkeypatch.setenv("NNHAL_SERVICE_USERS", f"{STRANGER}")
        with pytest.raises(HalError, match="no response"):
            nnhal.connect(f"unix:{path}", timeout=0.2)
        assert wait_until(lambda: _has_connection(listener))


def _has_connection(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
