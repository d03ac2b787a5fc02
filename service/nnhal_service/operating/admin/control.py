"""Control socket of a worker: commands of the admin process, one for each connection.

A request is one JSON object, up to the end of the stream. A response is a line, `ok` or `error`, and then the result,
or the reason. The socket is in the private folder of the worker, so only the user of the service and root can reach it.
"""

import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nnhal.local_users import own_and_root, socket_user
from nnhal_service.log import event
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.call_threads import CallThreads

NAME = "control"
"""Name of the socket in the folder of the worker."""
_MAX_REQUEST_BYTES = 2**16
_MAX_RESPONSE_BYTES = 2**26
_MAX_CONNECTIONS = 16
_IDLE_S = 10.0
"""Seconds that a client may take to send its request, or to read the response."""

Command = Callable[[Mapping[str, Any]], bytes]
"""Carries out a command with its arguments, and returns the result. May raise AdminError."""


class ControlServer:
    """Server of the control socket. Close it when done.

    Args:
        folder: private folder of the worker, in which the socket is created.

    Raises:
        OSError: the socket cannot be bound.
    """

    def __init__(self, folder: Path, commands: Mapping[str, Command]) -> None:
        self._commands = commands
        self._users = own_and_root()
        self._socket = socket.socket(socket.AF_UNIX)
        with _short_path(folder / NAME) as path:
            self._socket.bind(path)
        self._socket.listen()
        self._threads = CallThreads(self._socket, _MAX_CONNECTIONS, "nnhal-control", self._serve)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_IDLE_S)
        if socket_user(connection) in self._users:
            connection.sendall(self._respond(_receive(connection, _MAX_REQUEST_BYTES)))

    def _respond(self, request: bytes) -> bytes:
        try:
            message = json.loads(request)
            return b"ok\n" + self._commands[message["command"]](message)
        except AdminError as error:
            return b"error\n" + str(error).encode()
        except Exception as error:  # the worker goes on
            event("control-failed", logging.ERROR, why=f"{type(error).__name__}: {error}")
            return b"error\nthe worker failed: " + f"{type(error).__name__}: {error}".encode()

    def close(self) -> None:
        """Accept no more commands."""
        self._threads.is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends accept
        self._socket.close()


def ask_worker(folder: Path, command: str, timeout_s: float, **arguments: object) -> bytes:
    """Send a command with its arguments to the worker with a private folder, and return the result.

    Raises:
        AdminError: the worker refuses the command.
        OSError: it does not answer.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        with _short_path(folder / NAME) as path:
            connection.connect(path)
        connection.sendall(json.dumps({"command": command, **arguments}).encode())
        connection.shutdown(socket.SHUT_WR)
        status, _, result = _receive(connection, _MAX_RESPONSE_BYTES).partition(b"\n")
    if status == b"error":
        raise AdminError(result.decode("utf-8", "replace"))
    if status != b"ok":
        raise ConnectionError("the worker has ended")
    return result


def _receive(connection: socket.socket, limit: int) -> bytes:
    """Return everything up to the end of the stream."""
    received = bytearray()
    while data := connection.recv(2**16):
        received += data
        if len(received) > limit:
            raise OSError(f"a message has more than {limit} bytes")
    return bytes(received)


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Return a name for a socket that is short enough for the kernel, however long its path is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
