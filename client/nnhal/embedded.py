"""Embedded device: a service in a child process, on a private Unix socket, that stops with its parent.

The child is started with `python -P`, so that packages in the current folder cannot replace those of the project. It
stops when its parent ends, even if the parent is killed, and then removes the folder of its socket.
"""

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from nnhal.errors import DeadObjectError, MissingExtraError, require_linux
from nnhal.types import ErrorStatus

START_TIMEOUT_S = 60.0
"""Seconds to wait for a service to listen. A cold disk makes the first start slow."""
STOP_TIMEOUT_S = 15.0

_READY = "listening on "


class EmbeddedService:
    """Service in a child process. Close it when done.

    Args:
        options: options of `nnhal serve`, for example "--backends", "CpuRef".

    Raises:
        DeadObjectError: it does not start; has the last line of its log. A MissingExtraError if packages are missing.
        LinuxRequiredError: this system is not Linux.
    """

    def __init__(self, *options: str) -> None:
        require_linux("a service", "run `nnhal serve` on a Linux machine, and connect to its address")
        self._lock = threading.Lock()
        self._folder: Path | None = None
        # its log of calls is not read, and a busy service would spend a sixth of its time on it
        serve = ["serve", "--embedded", str(os.getpid()), "--log-level", "warning"]
        with tempfile.TemporaryFile() as log:
            self._process = _start_process([*serve, *options], log)
            self.pid = self._process.pid
            try:
                self.target = self._wait_until_ready(log)
            except BaseException:
                self.close()
                raise
        self._folder = Path(self.target.removeprefix("unix:")).parent

    def _wait_until_ready(self, log: IO[bytes]) -> str:
        """Wait until the service listens, and return its address."""
        assert self._process.stdout is not None
        line = _read_first_line(self._process.stdout)
        if line and line.startswith(_READY):
            return line.removeprefix(_READY).strip()
        self._process.kill()
        last, late = _read_last_line(log), f" within {START_TIMEOUT_S:g} s" if line is None else ""
        error = MissingExtraError if "pip install 'nnhal[" in last else DeadObjectError
        raise error(ErrorStatus.DEVICE_UNAVAILABLE, f"the embedded service did not start{late}: {last}")

    @property
    def running(self) -> bool:
        """True until the process has ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """Stop the process. A second call does nothing."""
        with self._lock:
            with self._process, contextlib.suppress(subprocess.TimeoutExpired):
                self._process.terminate()
                try:
                    self._process.wait(STOP_TIMEOUT_S)
                except BaseException:  # also a second Ctrl-C: stop waiting and leave no process behind
                    self._process.kill()
                    raise
            if self._folder is not None:  # the service removes it, unless it was killed
                shutil.rmtree(self._folder, ignore_errors=True)


def _start_process(arguments: Sequence[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start the command line with arguments, in a process group of its own.

    So Ctrl-C in a terminal or a notebook does not reach it: the program may catch the interrupt and go on. It imports
    from the same places as this process, which may have added some, but not from the folder of the program.
    """
    command = [sys.executable, "-P", "-m", "nnhal_tools", *arguments]
    paths = [os.environ.get("PYTHONPATH"), *(sys.path if sys.flags.safe_path else sys.path[1:])]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        process_group=0,
    )


def _read_first_line(stream: IO[bytes]) -> str | None:
    """Return the first line of a pipe; "" if it is closed, and None if nothing comes in time."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline().decode() if selector.select(START_TIMEOUT_S) else None


def _read_last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    return last.removeprefix("nnhal: ")
