"""`nnhal serve` as a service manager starts it: with open sockets, and with a socket for messages."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.concurrency import wait_until

_START = """
import os, sys
os.environ["LISTEN_PID"] = os.environ["WATCHDOG_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Sets the variables that have the id of the process, as a service manager does between fork and exec."""


@dataclass
class ActivatedService:
    """A running service; a context manager. It listens on sockets that the test has opened, and still has."""

    process: subprocess.Popen[bytes]
    log: Path
    messages: socket.socket
    lines: list[str] = field(default_factory=list)

    def wait_for(self, text: str) -> None:
        """Wait until the service sends a line that starts with a text, and forget the lines until there."""
        assert wait_until(lambda: self._has_sent(text), 60), (text, self.lines, self.log.read_text())
        del self.lines[: next(place for place, line in enumerate(self.lines) if line.startswith(text)) + 1]

    def _has_sent(self, text: str) -> bool:
        with suppress(BlockingIOError):
            while True:
                self.lines += self.messages.recv(4096, socket.MSG_DONTWAIT).decode().splitlines()
        return any(line.startswith(text) for line in self.lines)

    def stop(self) -> int:
        """Stop the service, and return its exit status."""
        self.process.terminate()
        return self.process.wait(60)

    def __enter__(self) -> "ActivatedService":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()  # which ends its workers too
        self.process.wait()
        self.messages.close()


def start_activated(folder: Path, sockets: Sequence[socket.socket], *options: str, **settings: str) -> ActivatedService:
    """Start a service with sockets, and with $NOTIFY_SOCKET and a watchdog of three seconds."""
    messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    messages.bind(str(folder / "notify"))
    log = folder / "service.log"
    copies = [os.dup(each.fileno()) for each in sockets]
    environment = {
        **os.environ,
        "LISTEN_FDS": str(len(sockets)),
        "LISTEN_FDNAMES": ":".join("nnhal" for _ in sockets),
        "NOTIFY_SOCKET": str(folder / "notify"),
        "WATCHDOG_USEC": "3000000",
        "NNHAL_CACHE_DIR": str(folder / "cache"),
        "NNHAL_STATE_DIR": str(folder / "state"),
        "OPENBLAS_NUM_THREADS": "1",
        **settings,
    }
    shell = f'exec {" ".join(f"{3 + place}<&{copy}" for place, copy in enumerate(copies))}; exec "$@"'
    command = [sys.executable, "-c", _START, "-P", "-m", "nnhal_tools.cli", "serve", *options]
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command], stdout=output, stderr=output, env=environment, pass_fds=copies
        )
    for copy in copies:
        os.close(copy)
    return ActivatedService(process, log, messages)
