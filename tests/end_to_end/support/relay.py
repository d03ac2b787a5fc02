"""A TCP relay in front of a service that counts sent bytes and can break connections."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Relay:
    """A TCP relay.

    Attributes:
        sent: bytes that clients have sent through it.
        accepted: connections that clients have made.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.sent = 0
        self.accepted = 0
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                server = socket.create_connection(self._to)
                self._ends += [client, server]
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, count: bool) -> None:
        with suppress(OSError):  # either end may close at any time
            while data := source.recv(1 << 18):
                if count:
                    self.sent += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Break all connections. New ones are still relayed."""
        ends, self._ends = self._ends, []
        for end in reversed(ends):  # the service learns of it first: a client may be back at once
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Break all connections and accept no new ones."""
        self._listener.close()
        self.cut()


@contextmanager
def relay(target: str) -> Iterator[Relay]:
    """Run a relay for the duration of a `with` block."""
    running = Relay(target)
    yield running
    running.close()
