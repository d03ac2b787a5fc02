"""Threads for the connections of a listening socket."""

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from nnhal_service.operating.admin.call_threads import CallThreads
from tests.concurrency import wait_until

LIMIT = 2


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener


def test_further_connections_wait_until_one_ends(listener: socket.socket) -> None:
    served: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
    go = threading.Semaphore(0)

    def serve(connection: socket.socket) -> None:
        served.put(connection)
        go.acquire()
        raise OSError("the client is gone")

    threads = CallThreads(listener, LIMIT, "test-calls", serve)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(LIMIT + 1)]
    first = [served.get(timeout=30) for _ in range(LIMIT)]
    assert served.empty()
    go.release()
    served.get(timeout=30)
    assert wait_until(lambda: sum(connection.fileno() < 0 for connection in first) == 1), "its thread closes it"
    threads.is_closed = True
    for client in clients:
        client.close()
    go.release(LIMIT)
