"""Until when a service runs: each case in a process of its own, which gets real signals."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from service.ending import Ending
from tests.end_to_end.holdings import ROOT


def a_signal_before_the_wait() -> None:
    with Ending() as ending:
        os.kill(os.getpid(), signal.SIGTERM)
        ending.wait()


def other_signals_do_not_end_it() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
    with Ending() as ending:
        os.kill(os.getpid(), signal.SIGUSR1)
        after(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        ending.wait()


def a_parent_that_has_ended() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with Ending(child.pid) as ending:
        ending.wait()


def a_parent_that_ends() -> None:
    child = subprocess.Popen(["sleep", "0.2"])
    with Ending(child.pid) as ending:
        ending.wait()
    assert child.wait(5) == 0


def its_descriptors_are_closed() -> None:
    before = os.listdir("/proc/self/fd")
    with Ending(os.getppid()):
        assert len(os.listdir("/proc/self/fd")) == len(before) + 3
    assert len(os.listdir("/proc/self/fd")) == len(before)


def after(seconds: float, call: Callable[[], None]) -> None:
    threading.Timer(seconds, call).start()


CASES: dict[str, tuple[Callable[[], None], str]] = {
    case.__name__: (case, said)
    for case, said in (
        (a_signal_before_the_wait, ""),
        (other_signals_do_not_end_it, "heard\n"),
        (a_parent_that_has_ended, ""),
        (a_parent_that_ends, ""),
        (its_descriptors_are_closed, ""),
    )
}


@pytest.mark.parametrize("name", CASES)
def test_it_ends_in_time(name: str) -> None:
    command = [sys.executable, "-m", __name__, name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, CASES[name][1], "")


if __name__ == "__main__":
    CASES[sys.argv[1]][0]()
