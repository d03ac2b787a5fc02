"""Bare Unix socket around LiteRT: the lower bound of the same machine's path.

Client and server share a memfd. A call copies the input into it, sends 24 bytes, and blocks until 24 bytes come back;
the server copies the input into the engine's tensor and the output into the memfd. There are no checks, no sessions and
no spinning. Both ends use blocking sockets without a timeout, as the fastest program of this kind would.
"""

import mmap
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from tests.benchmark.bare.grpc_server import PAYLOADS, Call, LiteRTEngine, Payload

PACKET = bytes(24)
"""A request or a response: as many bytes as nnhal's."""
CONNECT_LIMIT_S = 60

Work: TypeAlias = Callable[[memoryview], bytes]
"""Computes the bytes of an output from those of an input, which it does not keep."""


@dataclass(frozen=True)
class SocketTask:
    """Work that a server offers.

    Attributes:
        input_bytes: size of an input. Outputs follow it in the memfd.
        start: creates the work for one connection.
    """

    input_bytes: int
    start: Callable[[], Work]


def engine_task(payload: Payload) -> SocketTask:
    """Return the task that runs a payload on LiteRT with one thread."""

    def start() -> Work:
        engine = LiteRTEngine(payload)
        return lambda data: engine.run(payload.array(data))

    return SocketTask(payload.input_bytes, start)


# ---- Server ------------------------------------------------------------------------------------------------


def serve(tasks: Mapping[str, SocketTask], path: str) -> None:
    """Serve at the path of a socket, print it, and return when standard input ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        threading.Thread(target=_accept, args=(listener, tasks), daemon=True).start()
        print(path, flush=True)
        sys.stdin.read()


def _accept(listener: socket.socket, tasks: Mapping[str, SocketTask]) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve_connection, args=(connection, tasks), daemon=True).start()


def _serve_connection(connection: socket.socket, tasks: Mapping[str, SocketTask]) -> None:
    with connection:
        name, (descriptor,), _, _ = socket.recv_fds(connection, 256, 1)
        task = tasks[name.decode()]
        work, size = task.start(), task.input_bytes
        memory = mmap.mmap(descriptor, 0)
        os.close(descriptor)
        view = memoryview(memory)
        connection.send(PACKET)
        while connection.recv(len(PACKET)):
            output = work(view[:size])
            view[size : size + len(output)] = output
            connection.send(PACKET)


# ---- Client ------------------------------------------------------------------------------------------------


@contextmanager
def socket_call(path: str, task: str, data: bytes, output_bytes: int) -> Iterator[Call]:
    """Yield a call of a task with the bytes of an input, over a connection of its own."""
    size = len(data)
    descriptor = os.memfd_create("bare")
    os.ftruncate(descriptor, size + output_bytes)
    with mmap.mmap(descriptor, 0) as memory, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(CONNECT_LIMIT_S)
        connection.connect(path)
        socket.send_fds(connection, [task.encode()], [descriptor])
        os.close(descriptor)
        connection.recv(len(PACKET))
        connection.settimeout(None)
        send, receive = connection.send, connection.recv

        def call() -> bytes:
            memory[:size] = data
            send(PACKET)
            if not receive(len(PACKET)):
                raise RuntimeError(f"the server has closed the connection of {task!r}")
            return memory[size : size + output_bytes]

        yield call


def main(arguments: Sequence[str]) -> None:
    """Serve every payload at the path given."""
    (path,) = arguments
    serve({payload.name: engine_task(payload) for payload in PAYLOADS}, path)


if __name__ == "__main__":
    main(sys.argv[1:])
