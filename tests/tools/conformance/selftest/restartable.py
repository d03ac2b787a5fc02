"""Embedded service that shell commands can restart, kill and stop, for checks of what outlives the service.

The commands connect to a Unix socket. A thread of this process accepts the connection, ends the service and starts
another one with the same cache folder. The address stays the same: a symbolic link to the current service's socket.
"""

import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError
from nnhal_tools.conformance.device.control import ServiceControl

_COMMAND = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(sys.argv[2].encode()); "
    "sys.exit(not s.recv(1))"
)

_RESTART, _KILL, _STOP = b"restart", b"kill", b"stop"

RECOVERY_S = 60.0
"""Time limit for the service to respond again, also on a slow machine."""


class RestartableService:
    """Service that shell commands can restart, kill and stop. Close it after use.

    Args:
        comes_back: whether it comes back by itself when it has been killed or stopped.

    Attributes:
        target: the address, which does not change with a restart.
        control: the commands. The one that restarts the service exits when the new service listens, the others when
            the signal has been sent.

    Raises:
        DeadObjectError: the service does not start.
    """

    def __init__(self, *, comes_back: bool = True) -> None:
        self._comes_back = comes_back
        self._folder = tempfile.TemporaryDirectory(prefix="nnhal-restartable-")
        folder = Path(self._folder.name)
        self._link = folder / "socket"
        self._service = self._start()
        self.target = f"unix:{self._link}"
        self._restart_socket = socket.socket(socket.AF_UNIX)
        self._restart_socket.bind(str(folder / "restart"))
        self._restart_socket.listen()
        restart, kill, stop = (
            shlex.join([sys.executable, "-S", "-c", _COMMAND, str(folder / "restart"), kind.decode()])
            for kind in (_RESTART, _KILL, _STOP)
        )
        self.control = ServiceControl(restart, kill, stop, recovery_s=RECOVERY_S)
        self._thread = threading.Thread(target=self._serve_restarts, name="nnhal-restart", daemon=True)
        self._thread.start()

    def _start(self) -> EmbeddedService:
        service = EmbeddedService("--cache-dir", str(Path(self._folder.name) / "cache"))
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(service.target.removeprefix("unix:"))
        return service

    def _serve_restarts(self) -> None:
        while True:
            try:
                connection, _ = self._restart_socket.accept()
            except OSError:
                return
            with connection:
                kind = connection.recv(len(_RESTART))
                if kind != _RESTART:
                    os.kill(self._service.pid, signal.SIGKILL if kind == _KILL else signal.SIGTERM)
                    connection.sendall(b"1")
                self._service.close()
                if kind != _RESTART and not self._comes_back:
                    continue
                try:
                    self._service = self._start()
                except DeadObjectError:
                    continue  # The command fails because it receives no reply.
                if kind == _RESTART:
                    connection.sendall(b"1")

    def close(self) -> None:
        """Stop the service."""
        self._restart_socket.shutdown(socket.SHUT_RDWR)
        self._restart_socket.close()
        self._thread.join()
        self._service.close()
        self._folder.cleanup()
