"""An embedded service that a shell command can restart: for checks of what outlives a service.

A thread of this process waits for the command at a Unix socket and starts another service in place of the old one. Both
keep their cache in the same folder, and are reached by the same name, a link to the socket of the one that runs.
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
    """A running service. Close it when done.

    Attributes:
        target: where it listens, before and after.
        restart_command: for the shell; ends when the new service listens.

    Raises:
        DeadObjectError: it does not start.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nnhal-restartable-")
        folder = Path(self._folder.name)
        self._link = folder / "socket"
        self._service = self._start()
        self.target = f"unix:{self._link}"
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / "restart"))
        self._door.listen()
        self.restart_command = shlex.join([sys.executable, "-c", _COMMAND, str(folder / "restart")])
        self._thread = threading.Thread(target=self._work, name="nnhal-restart", daemon=True)
        self._thread.start()

    def _start(self) -> EmbeddedService:
        service = EmbeddedService("--cache-dir", str(Path(self._folder.name) / "cache"))
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(service.target.removeprefix("unix:"))
        return service

    def _work(self) -> None:
        while True:
            try:
                caller, _ = self._door.accept()
            except OSError:
                return
            with caller:
                self._service.close()
                try:
                    self._service = self._start()
                except DeadObjectError:
                    continue  # whoever called sees that nothing is said
                caller.sendall(b"1")

    def close(self) -> None:
        """Ends the service."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._thread.join()
        self._service.close()
        self._folder.cleanup()
