"""Processes, sockets and memfds that a fleet has left behind."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "NNHAL_FLEET_FOLDER"
"""Variable with the folder of a fleet. All processes of the fleet inherit it, those of Ray, too."""

_END_S = 30.0


def leftovers(folder: Path) -> list[str]:
    """Return what a fleet in a folder has left behind: processes, memfds of this process, and Unix sockets.

    The processes of a fleet have the variable `MARK`, or the folder as an argument.
    """
    return [*_processes(folder), *(f"memfd {text} of this process" for text in _memfds(os.getpid())), *_sockets(folder)]


def wait_for_end(folder: Path) -> list[str]:
    """Return what is left behind after all processes have had the time to end."""
    end = time.monotonic() + _END_S
    while (left := leftovers(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def _processes(folder: Path) -> Iterator[str]:
    mark, text = f"{MARK}={folder}".encode(), str(folder).encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes()
            environment = (process / "environ").read_bytes().split(b"\0")
            is_own = int(process.name) == os.getpid() or b"tests.benchmark" in command
            if not is_own and (mark in environment or text in command):
                memfds = len(list(_memfds(int(process.name))))
                yield f"process {process.name}, {memfds} memfds: {command.decode().replace(chr(0), ' ')[:100]}"


def _memfds(pid: int) -> Iterator[str]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(descriptor)
            if target.startswith("/memfd:nnhal"):
                yield target


def _sockets(folder: Path) -> Iterator[str]:
    for line in Path("/proc/net/unix").read_text().splitlines():
        if str(folder) in line:
            yield f"socket {line.split()[-1]}"
