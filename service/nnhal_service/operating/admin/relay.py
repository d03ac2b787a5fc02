"""Relay of a Unix socket to a gRPC server, which tells the server the user at the other end of each connection.

gRPC for Python does not tell the user of a peer. So connections are accepted here, where the kernel does, and passed on
to a private socket of the server. The names under which that happens are known to the relay, and gRPC reports them.
"""

import os
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress

from nnhal.local_users import socket_user
from nnhal_service.operating.admin.call_threads import CallThreads

_MAX_CONNECTIONS = 64
_PREFIX = "unix-abstract:"


class LocalRelay:
    """Relay. Close it when done.

    Args:
        listener: the listening socket, which remains the caller's.
        server: path of the private socket of the server.
        on_refused: called with the id of a user who may not.
    """

    def __init__(
        self, listener: socket.socket, server: str, users: Collection[int], on_refused: Callable[[int], None]
    ) -> None:
        self._server = server
        self._users = frozenset(users)
        self._on_refused = on_refused
        self._peers: dict[str, int] = {}
        self._threads = CallThreads(listener, _MAX_CONNECTIONS, "nnhal-admin", self._serve)

    def user(self, peer: str) -> int | None:
        """Return the id of the user of a connection, by the name of its peer in gRPC; None if it is unknown."""
        return self._peers.get(peer)

    def _serve(self, outer: socket.socket) -> None:
        name = ""
        try:
            with socket.socket(socket.AF_UNIX) as inner:
                user = socket_user(outer)
                if user not in self._users:
                    self._on_refused(user)
                    return
                inner.bind("")  # the kernel chooses a name that is not in use
                name = _PREFIX + os.fsdecode(inner.getsockname()[1:])
                self._peers[name] = user
                inner.connect(self._server)
                back = threading.Thread(target=_copy, args=(inner, outer), name="nnhal-admin-call", daemon=True)
                back.start()
                _copy(outer, inner)
                back.join()
        finally:
            self._peers.pop(name, None)

    def close(self) -> None:
        """Accept no more connections. The threads of open ones end with the process."""
        self._threads.is_closed = True


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy everything from one socket to another, up to the end of the stream or an error."""
    with suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
    for each in (source, target):  # gRPC does not use half of a connection
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
