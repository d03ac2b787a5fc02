"""Quarantine as a worker reads it: with the crashes of other workers that the supervisor has not recorded yet.

A client reconnects as soon as its worker has died, perhaps before the supervisor knows. Its model must not reach the
backend that crashed, and end a second worker.
"""

import os
import time
from pathlib import Path

from nnhal_driver.activity import is_in_progress
from nnhal_driver.quarantine import Verdict
from nnhal_service.channel import wait_readable
from nnhal_service.quarantine import QuarantineFile
from nnhal_service.supervisor.scoreboard import Scoreboard, WorkerState

_RECORD_S = 5.0
"""Seconds to wait at most for the supervisor, which usually takes milliseconds."""
_POLL_S = 0.005


class WorkerQuarantine(QuarantineFile):
    """The file, for one worker. Thread safe."""

    def __init__(self, folder: Path, scoreboard: Scoreboard) -> None:
        super().__init__(folder)
        self._scoreboard = scoreboard

    def verdict(self, digest: bytes) -> Verdict:
        """See the base class. If a worker has died with the model in progress, wait until that is recorded."""
        end = time.monotonic() + _RECORD_S
        while self._has_died_with(digest) and time.monotonic() < end:
            time.sleep(_POLL_S)
        return super().verdict(digest)

    def _has_died_with(self, digest: bytes) -> bool:
        """Return whether the row of a worker that has ended still has a model. The supervisor clears the row last."""
        return bool(digest) and any(
            state != WorkerState.EMPTY
            and is_in_progress(digest, self._scoreboard.activities(row))
            and _has_ended(self._scoreboard.read(row).pid)
            for row, state in enumerate(self._scoreboard.worker_states())
        )


def _has_ended(pid: int) -> bool:
    """Return whether a process has ended, even if its parent has not waited for it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:  # pid 0 of a row that has just been cleared
        return False
    try:
        return wait_readable(descriptor)
    finally:
        os.close(descriptor)
