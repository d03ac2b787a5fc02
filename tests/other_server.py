"""Server on loopback that does not speak gRPC."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def listening(greeting: bytes | None, *, answers: bool = True) -> Iterator[str]:
    """Run a server that is not a gRPC service, and yield its address.

    Args:
        greeting: bytes that it sends; None closes each connection.
        answers: whether it does anything but accept connections.
    """
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            if greeting is None:
                connection.close()
            elif answers:
                with suppress(OSError):  # a client that only looks for a listener is gone
                    connection.sendall(greeting)
            connections.append(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in connections:
        connection.close()
