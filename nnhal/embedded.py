"""The embedded device: a service in a child process, on a private Unix socket, that ends with its parent.

The child is started with `python -P`, so that a folder of the user's that is called `service` or `driver` is not found
in place of ours. It ends when its parent does, also when that is killed, and then removes the folder of its socket.
"""

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from nnhal.enums import ErrorStatus
from nnhal.errors import DeadObjectError

START_S = 60.0
"""Seconds that a service has to listen; a cold disk makes the first start slow."""
STOP_S = 15.0

_READY = "listening on "


class EmbeddedService:
    """A running service. Close it when done.

    Args:
        options: of `nnhal serve`, such as "--backends", "CpuRef".

    Attributes:
        target: where it listens.
        pid: its process.

    Raises:
        DeadObjectError: it does not start; with the last line of its log.
    """

    def __init__(self, *options: str) -> None:
        self._lock = threading.Lock()
        self._folder: Path | None = None
        # nobody reads what it logs of each call, and a busy service spends a sixth of its time on that
        serve = ["serve", "--embedded", str(os.getpid()), "--log-level", "warning"]
        command = [sys.executable, "-P", "-m", "tools.cli", *serve, *options]
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
            self.pid = self._process.pid
            try:
                self.target = self._ready(log)
            except BaseException:
                self.close()
                raise
        self._folder = Path(self.target.removeprefix("unix:")).parent

    def _ready(self, log: IO[bytes]) -> str:
        """Waits until the service listens; gives its address."""
        assert self._process.stdout is not None
        line = _first_line(self._process.stdout)
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
        self._process.kill()
        reason = f"the embedded service did not start: {_last_line(log)}"
        raise DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, reason)

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the process. A second call does nothing."""
        with self._lock:
            with self._process, contextlib.suppress(subprocess.TimeoutExpired):
                self._process.terminate()
                try:
                    self._process.wait(STOP_S)
                except BaseException:  # also a second Ctrl-C: no waiting then, and no process left
                    self._process.kill()
                    raise
            if self._folder is not None:  # the service removes it, unless it was killed
                shutil.rmtree(self._folder, ignore_errors=True)


def _first_line(stream: IO[bytes]) -> str:
    """The first line of a pipe; "" when it is closed or nothing comes in time."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline().decode() if selector.select(START_S) else ""


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")
