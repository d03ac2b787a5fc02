"""The embedded service: ready, private, and gone with its parent, however that ends."""

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import nnhal
from nnhal.embedded import EmbeddedService

PROGRAM = """
import os, signal, sys, time
from nnhal.embedded import EmbeddedService
service = EmbeddedService()
print(service.pid, service.target, flush=True)
{rest}
"""


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid: int, folder: Path) -> bool:
    """Waits until a process and its folder are gone."""
    end = time.monotonic() + 10
    while exists(pid) or folder.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def folder_of(target: str) -> Path:
    return Path(target.removeprefix("unix:")).parent


def test_it_serves_on_a_socket_that_nobody_else_reaches() -> None:
    with closing(EmbeddedService()) as service:
        folder = folder_of(service.target)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with nnhal.connect(service.target) as device:
            assert "CpuRef" in device.version
    assert not exists(service.pid)
    assert not folder.exists()
    service.close()


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_it_ends_with_its_block(failure: type[BaseException]) -> None:
    with pytest.raises(failure), closing(EmbeddedService()) as service:
        raise failure
    assert gone(service.pid, folder_of(service.target))


@pytest.mark.parametrize(
    "rest",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "sys.exit()",
        "raise RuntimeError",
        "if os.fork() == 0: time.sleep(30)\nos.kill(os.getpid(), signal.SIGKILL)",
    ],
    ids=["killed", "terminated", "exits", "raises", "killed, and a child of it lives on"],
)
def test_it_ends_with_its_parent(rest: str) -> None:
    command = [sys.executable, "-P", "-c", PROGRAM.format(rest=rest)]
    parent = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    pid, target = parent.stdout.readline().split()
    try:
        assert gone(int(pid), folder_of(target))
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


def test_a_folder_called_service_is_not_taken_for_ours(tmp_path: Path) -> None:
    for name in ("service", "driver", "tools"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a folder of the user')")
    code = "import nnhal.embedded; s = nnhal.embedded.EmbeddedService(); print(s.target); s.close()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unix:")


def test_it_says_why_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_BACKENDS", '["NoSuchBackend"]')
    with pytest.raises(nnhal.DeadObjectError, match="there is no backend 'NoSuchBackend'"):
        EmbeddedService()
