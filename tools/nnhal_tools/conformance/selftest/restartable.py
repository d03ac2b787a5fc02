"""Embedded service that a shell command can restart, for checks of state that outlives the service.

The command connects to a Unix socket. A thread of this process accepts the connection, stops the service and starts
another one with the same cache folder. The address stays the same: a symbolic link to the current service's socket.
"""

import shlex
import socket
import sys
import tempfile
import threading
from pathlib import Path

from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError

_COMMAND = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.exit(not s.recv(1))"


class RestartableService:
    """Service that a shell command can restart. Close it after use.

    Attributes:
        target: the address, which does not change with a restart.
        restart_command: the shell command; it exits when the new service listens.

    Raises:
        DeadObjectError: the service does not start.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nnhal-restartable-")
        folder = Path(self._folder.name)
        self._link = folder / "socket"
        self._service = self._start()
        self.target = f"unix:{self._link}"
        self._restart_socket = socket.socket(socket.AF_UNIX)
        self._restart_socket.bind(str(folder / "restart"))
        self._restart_socket.listen()
        self.restart_command = shlex.join([sys.executable, "-c", _COMMAND, str(folder / "restart")])
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
                self._service.close()
                try:
                    self._service = self._start()
                except DeadObjectError:
                    continue  # The command fails because it receives no reply.
                connection.sendall(b"1")

    def close(self) -> None:
        """Stop the service."""
        self._restart_socket.shutdown(socket.SHUT_RDWR)
        self._restart_socket.close()
        self._thread.join()
        self._service.close()
        self._folder.cleanup()
