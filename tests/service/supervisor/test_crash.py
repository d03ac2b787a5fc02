"""Crashes: how a process has ended, and the work that is suspect."""

import ctypes
import faulthandler
import os
import signal
import threading

from nnhal_driver.activity import Activity, Stage
from nnhal_service.supervisor.crash import describe_status, find_suspects, is_crash, read_crash_log
from tests.concurrency import in_own_process

FIRST = Activity(Stage.EXECUTING, b"1", b"", "CpuAcc", 0, 0, 0, 0, 0x7F01)
SECOND = Activity(Stage.PREPARING, b"2", b"", "CpuAcc", 0, 0, 0, 0, 0x7F02)


def status_of(end: object) -> int:
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), end) if isinstance(end, signal.Signals) else os._exit(int(str(end)))
    return os.waitpid(pid, 0)[1]


@in_own_process
def test_descriptions() -> None:
    assert describe_status(status_of(signal.SIGKILL)) == "killed by SIGKILL"
    assert describe_status(status_of(3)) == "exited with code 3"


@in_own_process
def test_crashes() -> None:
    assert is_crash(status_of(signal.SIGSEGV)) and is_crash(status_of(signal.SIGABRT)) and is_crash(status_of(1))
    assert not is_crash(status_of(signal.SIGKILL)) and not is_crash(status_of(0))


def test_thread_in_the_stack_is_the_suspect() -> None:
    log = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x0000000000007f02 (most recent call first):\n"
    assert find_suspects([FIRST, SECOND], log) == [SECOND]


def test_without_a_known_thread_all_work_is_suspect() -> None:
    log = "Fatal Python error: Aborted\n\nCurrent thread 0x0000000000000001 (most recent call first):\n"
    assert find_suspects([FIRST, SECOND], log) == [FIRST, SECOND]
    assert find_suspects([FIRST, SECOND], "") == [FIRST, SECOND]


@in_own_process
def test_stack_of_a_real_crash_names_the_thread() -> None:
    """The format is CPython's, not ours."""
    log = os.memfd_create("log")
    pid = os.fork()
    if pid == 0:
        faulthandler.enable(log)
        ctypes.string_at(0)
    os.waitpid(pid, 0)
    # the child has the ids of the threads of its parent
    own = Activity(Stage.EXECUTING, b"3", b"", "", 0, 0, 0, 0, threading.get_ident())
    assert find_suspects([FIRST, own], read_crash_log(log)) == [own]
    os.close(log)
