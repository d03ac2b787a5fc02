"""`nnhal serve` as a child process, which is started again when it ends, and which ends with this process."""

import logging
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_log = logging.getLogger(__name__)

_READY = "listening on "
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0
"""Seconds that a service may take to stop, besides its grace time."""
_DELAYS_S = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0)
"""Seconds to wait before the next start, by the number of failures in a row."""
_STABLE_S = 10.0
"""Seconds after which a service that ran does not count as a failure."""
_SERVE = ("-P", "-m", "nnhal_fleet.launcher")

Options = Callable[[], Sequence[str]]
"""Returns options of `nnhal serve`."""
Changed = Callable[[str], None]
"""Called with the address of a service that has begun to listen, or "" for one that has ended."""


class ServiceProcess:
    """Service in a child process. Call `start` first, and `stop` at the end.

    The thread that watches the service starts it too: the kernel ends a child with the thread that has started it.

    Args:
        options: returns the options of `nnhal serve` for the next start.
        changed: called on the thread that watches the service, when it listens and when it ends.

    Attributes:
        generation: number of starts.
    """

    def __init__(self, options: Options, log: Path, changed: Changed) -> None:
        self.generation = 0
        self._options = options
        self._log = log
        self._changed = changed
        self._process: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nnhal-service", daemon=True)

    def start(self) -> None:
        """Start the service and the thread that watches it."""
        self._thread.start()

    @property
    def pid(self) -> int:
        """Id of the process of the supervisor; 0 if none runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else 0

    def end(self) -> None:
        """Have the service finish what runs and end. Another one is started then, unless `stop` was called."""
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                process.terminate()

    def stop(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """End the service for good: after its grace time, or with SIGKILL after `timeout_s` seconds."""
        self._stopping.set()
        self.end()
        self._thread.join(timeout_s)
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(_DELAYS_S[min(failures, len(_DELAYS_S) - 1)]):
            started = time.monotonic()
            code = self._run_once()
            is_failure = code != 0 and time.monotonic() - started < _STABLE_S
            failures = failures + 1 if is_failure else 0
            if not self._stopping.is_set():
                _log.warning("the service ended with exit code %d", code)

    def _run_once(self) -> int:
        """Run a service until it ends, and return its exit code."""
        command = [sys.executable, *_SERVE, str(os.getpid()), *self._options()]
        with self._log.open("a") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
            )
        with process:
            self._process = process
            if self._stopping.is_set():  # it was set before there was a process to end
                process.terminate()
            assert process.stdout is not None
            line = _read_line(process.stdout)
            if line.startswith(_READY):
                self.generation += 1
                self._changed(line.removeprefix(_READY).strip())
            else:
                process.kill()
            code = process.wait()
        self._changed("")
        return code


def _read_line(stream: IO[str]) -> str:
    """Return the first line of a pipe; "" if it is closed or nothing comes in time."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline() if selector.select(_START_TIMEOUT_S) else ""
