"""Analysis of a crash: the end of a process in words, and the work that probably caused it."""

import os
import re
import signal
from collections.abc import Sequence

from nnhal_driver.activity import Activity

STACKS_SIGNAL = signal.SIGUSR2
"""Signal on which a worker writes the stacks of its threads into its crash log, even if a thread holds the GIL."""

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
_CURRENT_THREAD = re.compile(r"^Current thread 0x([0-9a-f]+) ", re.MULTILINE)
_MAX_LOG_BYTES = 64 * 1024


def describe_status(status: int) -> str:
    """Return how a process has ended, given its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"


def is_crash(status: int) -> bool:
    """Return whether the code of a process has crashed. A kill from outside is not a crash."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) in _CRASHES
    return os.waitstatus_to_exitcode(status) != 0


def read_crash_log(descriptor: int) -> str:
    """Return the stacks that a process has written when it crashed or was told to; "" if there are none."""
    return os.pread(descriptor, _MAX_LOG_BYTES, 0).decode(errors="replace")


def find_suspects(activities: Sequence[Activity], crash_log: str) -> list[Activity]:
    """Return the work that may have caused a crash.

    The stack names the thread that crashed. Threads of an engine are unknown to Python: all work is suspect then.
    """
    if match := _CURRENT_THREAD.search(crash_log):
        thread = int(match.group(1), 16)
        if own := [activity for activity in activities if activity.thread == thread]:
            return own
    return list(activities)
