"""Tie between a forked process and its supervisor: the process ends when the supervisor ends."""

import ctypes
import os
import signal
import time

_POLL_S = 0.001
_PR_SET_PDEATHSIG = 1


def end_with(supervisor: int) -> None:
    """Have the kernel kill this process when the supervisor, which adopts it, ends, however that happens.

    Raises:
        SystemExit: it has ended.
    """
    while os.getppid() != supervisor:  # the process between is about to exit, which must not count as that end
        if not _exists(supervisor):
            raise SystemExit(1)
        time.sleep(_POLL_S)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        raise SystemExit(1)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
