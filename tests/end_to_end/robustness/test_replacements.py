"""Workers that are killed, reloaded and stopped under load: no call fails, and no answer is wrong.

NNHAL_REPLACEMENTS is the number of rounds of each test.
"""

import os
import random
import signal
from pathlib import Path as File

import pytest

from tests.concurrency import wait_until
from tests.end_to_end.support.load_clients import LoadClient, Path, wait_for_answers
from tests.end_to_end.support.service_process import start_service, stop_service, worker_pids

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("NNHAL_REPLACEMENTS", "3"))
EXECUTING = [Path(is_async, transport, "execute") for is_async in (False, True) for transport in ("auto", "grpc")]
PATHS = [
    *EXECUTING,
    Path(False, "auto", "burst"),
    Path(False, "grpc", "burst"),
    Path(False, "grpc", "submit"),
    Path(True, "auto", "burst"),
]


def test_kills(tmp_path: File) -> None:
    service = start_service(tmp_path, "--workers", "2")
    clients = [LoadClient(service.target, path) for path in PATHS]
    wait_for_answers(clients)
    for _ in range(ROUNDS):
        started = service.log.read_text().count(" worker-started ")
        os.kill(random.choice(worker_pids(service.process.pid)), signal.SIGKILL)
        assert wait_until(lambda: service.log.read_text().count(" worker-started ") > started, 60)  # noqa: B023
        wait_for_answers(clients)
    for client in clients:
        client.stop()
    assert stop_service(service) == 0


def test_reloads(tmp_path: File) -> None:
    service = start_service(tmp_path, "--workers", "2")
    clients = [LoadClient(service.target, path) for path in PATHS]
    wait_for_answers(clients)
    for number in range(1, ROUNDS + 1):
        service.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: service.log.read_text().count(" reloaded") == number, 120)  # noqa: B023
        wait_for_answers(clients)
    for client in clients:
        client.stop()
    assert stop_service(service) == 0


def test_restarts(tmp_path: File) -> None:
    address = f"unix:{tmp_path}/socket"
    service = start_service(tmp_path, "--listen", address)
    clients = [LoadClient(address, path) for path in EXECUTING]
    wait_for_answers(clients)
    for _ in range(ROUNDS):
        assert stop_service(service) == 0, service.log.read_text()
        service = start_service(tmp_path, "--listen", address)
        wait_for_answers(clients)
    for client in clients:
        client.stop()
    assert stop_service(service) == 0
