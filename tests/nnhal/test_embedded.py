"""Embedded service: it listens on a private socket, and stops when its parent ends in any way."""

import os
import signal
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import nnhal
from nnhal.embedded import EmbeddedService
from tests.concurrency import wait_until

PROGRAM = """
import os, signal, sys, time
from nnhal.embedded import EmbeddedService
service = EmbeddedService()
print(service.pid, service.target, flush=True)
{rest}
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_removed(pid: int, folder: Path) -> bool:
    """Wait until a process and its folder are gone, and return False if that takes too long."""
    return wait_until(lambda: not is_running(pid) and not folder.exists())


def folder_of(target: str) -> Path:
    return Path(target.removeprefix("unix:")).parent


def test_serves_on_a_private_socket() -> None:
    with closing(EmbeddedService()) as service:
        folder = folder_of(service.target)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with nnhal.connect(service.target) as device:
            assert "CpuRef" in device.version
    assert not is_running(service.pid)
    assert not folder.exists()
    service.close()


def test_ignores_interrupts() -> None:
    with closing(EmbeddedService()) as service:
        os.kill(service.pid, signal.SIGINT)
        for _ in range(2):  # the first answer may come before the signal is handled
            with nnhal.connect(service.target, timeout=60) as device:
                assert "CpuRef" in device.version
        assert service.running


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_stops_at_the_end_of_its_block(failure: type[BaseException]) -> None:
    with pytest.raises(failure), closing(EmbeddedService()) as service:
        raise failure
    assert wait_until_removed(service.pid, folder_of(service.target))


@pytest.mark.parametrize(
    "rest",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "sys.exit()",
        "raise RuntimeError",
        "if os.fork() == 0: time.sleep(300)\nos.kill(os.getpid(), signal.SIGKILL)",
    ],
    ids=["killed", "terminated", "exits", "raises", "killed while its own child lives on"],
)
def test_stops_when_its_parent_ends(rest: str) -> None:
    command = [sys.executable, "-P", "-c", PROGRAM.format(rest=rest)]
    parent = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    pid, target = parent.stdout.readline().split()
    try:
        assert wait_until_removed(int(pid), folder_of(target))
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


def test_packages_in_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("service", "driver", "tools"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a folder of the user')")
    code = "import nnhal.embedded; s = nnhal.embedded.EmbeddedService(); print(s.target); s.close()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unix:")


def test_error_has_the_reason_of_a_failed_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_BACKENDS", '["NoSuchBackend"]')
    with pytest.raises(nnhal.DeadObjectError, match="there is no backend 'NoSuchBackend'"):
        EmbeddedService()


def test_error_of_a_late_start_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnhal.embedded.START_TIMEOUT_S", 1e-6)
    with pytest.raises(nnhal.DeadObjectError, match="the embedded service did not start within 1e-06 s: no output"):
        EmbeddedService()
