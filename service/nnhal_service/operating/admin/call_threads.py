"""Threads for the connections of a listening socket, a limited number at once."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_RETRY_S = 0.1


class CallThreads:
    """Accepts connections, and serves each one on a thread of its own, which closes it.

    Attributes:
        is_closed: set it before the listener is closed; then no more connections are accepted.

    Args:
        limit: number of connections at once; others wait.
        name: of the thread that accepts. Those of connections end with `-call`.
        serve: may raise OSError, which ends the connection.
    """

    def __init__(
        self, listener: socket.socket, limit: int, name: str, serve: Callable[[socket.socket], object]
    ) -> None:
        self.is_closed = False
        self._listener = listener
        self._slots = threading.BoundedSemaphore(limit)
        self._name = name
        self._serve = serve
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def _accept(self) -> None:
        while not self.is_closed:
            self._slots.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._slots.release()
                time.sleep(_RETRY_S)  # the process may be out of descriptors
                continue
            threading.Thread(target=self._run, args=(connection,), name=f"{self._name}-call", daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):
                self._serve(connection)
        finally:
            self._slots.release()
