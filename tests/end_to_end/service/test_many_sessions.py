"""A hundred concurrent sessions, and clients that disappear: outputs are correct, and the service frees everything."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
from tests.concurrency import run_concurrently
from tests.end_to_end.support.models import ADD
from tests.end_to_end.support.process_usage import settled_usage
from tests.end_to_end.support.service_objects import session_counts, wait_for_session_ends
from tests.end_to_end.support.service_process import Service, start_service, stop_service

CLIENT = """
import random, sys, numpy as np, nnhal
from tests.end_to_end.support.models import ADD
print("started", flush=True)
rng = random.Random(int(sys.argv[2]))
device = nnhal.connect(sys.argv[1])
while True:
    preparations = [device.prepare(ADD) for _ in range(3)]
    prepared = preparations[0].result()
    for size in (10, 100_000, 1_000_000):
        prepared.execute([np.ones(size, np.float32)] * 2)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = start_service(tmp_path, NNHAL_SESSION_GRACE_S="0.1", NNHAL_IDLE_THREAD_S="0.3")
    yield running
    stop_service(running)


def use_randomly(target: str, seed: int) -> None:
    """Prepare, execute, cancel and close in random order."""
    rng = random.Random(seed)
    device = nnhal.connect(target, timeout=60)
    models = []
    for _ in range(12):
        match rng.randrange(4):
            case 0:
                models.append(device.prepare(ADD).result(60))
            case 1 if models:
                models.pop(rng.randrange(len(models))).close()
            case 2:
                device.prepare(ADD).cancel()
            case _ if models:
                size = rng.choice([1, 1000, 40_000])
                x = np.full(size, rng.random(), np.float32)
                np.testing.assert_array_equal(rng.choice(models).execute([x, x])[0], 2 * x)
    if rng.random() < 0.7:
        device.close()
    else:
        device._connection._channel.close()  # without closing the session


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.nightly)])
def test_concurrent_sessions(service: Service, count: int) -> None:
    pid = service.pid
    run_concurrently(count, lambda seed: use_randomly(service.target, seed))
    assert wait_for_session_ends(service)
    before = settled_usage(pid)
    for _ in range(2):
        run_concurrently(count, lambda seed: use_randomly(service.target, seed))
        assert wait_for_session_ends(service)
    after = settled_usage(pid)
    assert (after.descriptors, after.threads) <= (before.descriptors, before.threads)
    assert "Traceback" not in service.log.read_text()


def can_make_namespaces() -> bool:
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    probe = subprocess.run(["ip", "netns", "add", "nnhal-probe"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", "nnhal-probe"], capture_output=True, check=False)
    return probe.returncode == 0


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def cable() -> Iterator[tuple[str, str]]:
    """Yield the name of a network namespace that is connected with this one, and the address of this end."""
    if not can_make_namespaces():
        pytest.skip("network namespaces need root and the program `ip`")
    name = f"nnhal{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        ip("addr", "add", "10.213.7.1/24", "dev", f"{name}a")
        ip("link", "set", f"{name}a", "up")
        ip("-n", name, "addr", "add", "10.213.7.2/24", "dev", f"{name}b")
        ip("-n", name, "link", "set", f"{name}b", "up")
        yield name, "10.213.7.1"
    finally:
        ip("netns", "del", name)


@pytest.mark.slow
def test_client_whose_network_disappears(cable: tuple[str, str], tmp_path: Path) -> None:
    name, address = cable
    options = ("--listen", f"{address}:0", "--insecure")
    # a client on a busy machine may need more than a second to answer a ping
    service = start_service(tmp_path, *options, NNHAL_SESSION_GRACE_S="0.1", NNHAL_KEEPALIVE_S="3")
    # the service also listens on loopback: the address of the cable is in the log
    target = service.log.read_text().split("addresses=")[1].split()[0].split(",")[1]
    code = CLIENT.replace("while True:", "for _ in [1]:") + "\nprint('idle', flush=True)\nimport time; time.sleep(600)"
    command = ["ip", "netns", "exec", name, sys.executable, "-c", code, target, "1"]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[3])
    try:
        assert client.stdout is not None
        assert [client.stdout.readline().strip() for _ in range(2)] == ["started", "idle"]
        assert session_counts(service) == (1, 0)
        ip("link", "set", f"{name}a", "down")
        assert wait_for_session_ends(service, 60), "the session has not ended"
        assert service.logged("its connection is gone")
    finally:
        client.kill()
        client.wait()
        assert client.stdout is not None
        client.stdout.close()
        stop_service(service)
