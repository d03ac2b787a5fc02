"""Shutdown of a service: each case runs in a process of its own, which receives real signals."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from nnhal_service.shutdown import ShutdownSignal
from tests.end_to_end.support.service_objects import ROOT


def signal_before_the_wait() -> None:
    with ShutdownSignal() as shutdown:
        os.kill(os.getpid(), signal.SIGTERM)
        shutdown.wait()


def other_signals_are_ignored() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
    with ShutdownSignal() as shutdown:
        os.kill(os.getpid(), signal.SIGUSR1)
        after(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        shutdown.wait()


def parent_that_has_exited() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with ShutdownSignal(child.pid) as shutdown:
        shutdown.wait()


def parent_that_exits() -> None:
    child = subprocess.Popen(["sleep", "0.2"])
    with ShutdownSignal(child.pid) as shutdown:
        shutdown.wait()
    assert child.wait(60) == 0


def descriptors_are_closed() -> None:
    before = os.listdir("/proc/self/fd")
    with ShutdownSignal(os.getppid()):
        assert len(os.listdir("/proc/self/fd")) == len(before) + 3
    assert len(os.listdir("/proc/self/fd")) == len(before)


def after(seconds: float, call: Callable[[], None]) -> None:
    threading.Timer(seconds, call).start()


CASES: dict[str, tuple[Callable[[], None], str]] = {
    case.__name__: (case, output)
    for case, output in (
        (signal_before_the_wait, ""),
        (other_signals_are_ignored, "heard\n"),
        (parent_that_has_exited, ""),
        (parent_that_exits, ""),
        (descriptors_are_closed, ""),
    )
}


@pytest.mark.parametrize("name", CASES)
def test_wait_ends_in_time(name: str) -> None:
    command = [sys.executable, "-m", __name__, name]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, CASES[name][1], "")


if __name__ == "__main__":
    CASES[sys.argv[1]][0]()
