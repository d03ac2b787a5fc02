"""A real service with workers: deaths, hangs, reloads and stops."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import nnhal
from tests.concurrency import wait_until
from tests.end_to_end.support.models import ADD
from tests.end_to_end.support.service_process import Service, has_ended, start_service, stop_service, worker_pids

pytestmark = pytest.mark.slow

ONES = np.ones(2, np.float32)


@contextmanager
def running(folder: Path, *options: str, **settings: str) -> Iterator[Service]:
    """Run a service. At the end, check that it stops with code 0 and leaves no process behind."""
    service = start_service(folder, *options, **settings)
    workers = worker_pids(service.process.pid)
    try:
        yield service
    finally:
        workers += worker_pids(service.process.pid)
        code = stop_service(service)
    assert code == 0, service.log.read_text()
    assert all(map(has_ended, workers))


def execute(target: str) -> None:
    with nnhal.connect(target) as device, device.prepare(ADD).result(60) as prepared:
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], ONES + ONES)


def wait_for_new_worker(service: Service, old: list[int]) -> None:
    count = len(old)
    assert wait_until(lambda: len(set(worker_pids(service.process.pid)) - set(old)) > 0, 60)
    assert wait_until(lambda: len(worker_pids(service.process.pid)) == count, 60)


def template_of(service: Service) -> int:
    """Return the id of the process that forks the workers."""
    pid = service.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_killed_worker_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        execute(service.target)
        old = worker_pids(service.process.pid)
        os.kill(old[0], signal.SIGKILL)
        wait_for_new_worker(service, old)
        assert wait_until(lambda: service.log.read_text().count(" serving ") == 2, 60)
        execute(service.target)
        assert service.logged("worker-died worker=0") and service.logged("how='killed by SIGKILL'")


def test_killed_template_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        (worker,) = worker_pids(service.process.pid)
        os.kill(template_of(service), signal.SIGKILL)
        assert wait_until(lambda: service.logged("template-ended"), 60)
        os.kill(worker, signal.SIGKILL)
        wait_for_new_worker(service, [worker])
        assert wait_until(lambda: service.log.read_text().count(" serving ") == 2, 60)
        execute(service.target)


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--workers", "2")
    workers = worker_pids(service.process.pid)
    assert len(workers) == 2
    service.process.kill()
    assert wait_until(lambda: all(map(has_ended, workers)), 60)
    stop_service(service)


def test_stuck_worker_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "--heartbeat-timeout-s", "1") as service:
        old = worker_pids(service.process.pid)
        os.kill(old[0], signal.SIGSTOP)
        wait_for_new_worker(service, old)
        assert service.logged("no heartbeat for")
        assert wait_until(lambda: service.log.read_text().count(" serving ") == 2, 60)
        execute(service.target)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_clients_are_spread_over_the_workers(kind: str, tmp_path: Path) -> None:
    """Each kind has a service of its own, because clients that have just left are still counted for a moment."""
    address = f"unix:{tmp_path}/socket"
    with running(tmp_path, "--workers", "2", "--listen", address) as service:
        target = service.target if kind == "tcp" else address
        before = service.log.read_text()
        with nnhal.connect(target), nnhal.connect(target):
            new = service.log.read_text().removeprefix(before)
            assert sorted(re.findall(r" session-opened .* worker=(\d+)", new)) == ["0", "1"]


def test_unix_path_reaches_a_worker_that_lives(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with running(tmp_path, "--workers", "2", "--listen", f"unix:{path}") as service:
        (slot,) = (slot for slot in (0, 1) if path.samefile(f"{path}.{slot}"))
        (worker,) = re.findall(rf"worker-started worker={slot} pid=(\d+)", service.log.read_text())
        template = template_of(service)
        os.kill(template, signal.SIGSTOP)  # no other worker can start
        try:
            os.kill(int(worker), signal.SIGKILL)
            assert wait_until(lambda: service.logged(f"worker-died worker={slot}"), 60)
            assert wait_until(lambda: path.samefile(f"{path}.{1 - slot}"), 60)
            execute(f"unix:{path}")
        finally:
            os.kill(template, signal.SIGCONT)
        assert wait_until(lambda: service.log.read_text().count("worker-started") == 3, 60)
        execute(f"unix:{path}")


def test_reload_replaces_workers_and_reads_the_settings(tmp_path: Path) -> None:
    config = tmp_path / "nnhal.toml"
    config.write_text("session_grace_s = 1.0\n")
    with running(tmp_path, "--workers", "2", "--config", str(config)) as service:
        old = worker_pids(service.process.pid)
        config.write_text("session_grace_s = 2.0\n")
        service.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: service.logged(" reloaded"), 60)
        assert not set(old) & set(worker_pids(service.process.pid))
        with nnhal.connect(service.target) as device:
            assert device is not None
        execute(service.target)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("threads = 'many'\n", "threads"), ("tls_key = '/key'\n", "--tls-key without --tls-cert")],
)
def test_reload_with_invalid_settings_changes_nothing(tmp_path: Path, text: str, reason: str) -> None:
    config = tmp_path / "nnhal.toml"
    config.write_text("")
    with running(tmp_path, "--config", str(config)) as service:
        old = worker_pids(service.process.pid)
        config.write_text(text)
        service.process.send_signal(signal.SIGHUP)
        assert wait_until(lambda: service.logged("reload-failed"), 60)
        assert reason in service.log.read_text()
        assert worker_pids(service.process.pid) == old
        execute(service.target)


def test_failed_start_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nowhere"):
        start_service(tmp_path, "--backends", "nowhere")


def test_stop_ends_a_worker_that_hangs(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--stop-grace-s", "0.2")
    (worker,) = worker_pids(service.process.pid)
    os.kill(worker, signal.SIGSTOP)
    began = time.monotonic()
    assert stop_service(service) == 0
    assert time.monotonic() - began < 30  # not a measurement: without the supervisor it would never end
    assert service.logged("it did not stop in time")
