"""A service in a process of its own, for as long as a command needs it."""

import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from tools.cli.errors import FAILED, CommandError

START_S = 60.0
"""Seconds that a service has to listen; a cold disk makes the first start slow."""
STOP_S = 15.0

_READY = "listening on "


@dataclass(frozen=True)
class Service:
    """A running service."""

    pid: int
    address: str
    start_s: float


@contextmanager
def running_service() -> Iterator[Service]:
    """Starts `nnhal serve` on a private Unix socket and ends it, whatever happens (but SIGKILL) to this process.

    Raises:
        CommandError: it does not start; with the last line of its log.
    """
    with tempfile.TemporaryDirectory(prefix="nnhal-") as folder, _exit_on_sigterm():
        began = time.perf_counter()
        # -P: a folder of the user's that is called service or driver must not be found instead
        command = [sys.executable, "-P", "-m", "tools.cli", "serve", "--listen", f"unix:{folder}/socket"]
        log = Path(folder, "log")
        with log.open("w") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            assert process.stdout is not None
            line = _first_line(process.stdout)
            if not line.startswith(_READY):
                process.kill()
                raise CommandError(f"the service did not start: {_last_line(log)}", FAILED)
            yield Service(process.pid, line.removeprefix(_READY).strip(), time.perf_counter() - began)
        finally:
            _end(process)


def _first_line(stream: IO[str]) -> str:
    """The first line of a pipe; "" when it is closed or nothing comes in time."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline() if selector.select(START_S) else ""


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.terminate()
        try:
            process.wait(STOP_S)
        except BaseException:  # also a second Ctrl-C: no waiting then, and no process left
            process.kill()
            raise


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM an exception, so that what is open is closed."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
