"""Program that another user runs: it waits for an address to become free, takes it, and records what clients send.

python -m tests.end_to_end.support.squatter UID ADDRESS. The address is HOST:PORT, or @NAME of a data socket. It prints
"ready" before it waits, and "listening" when it has the address. At the end of its input, it prints a JSON list of what
it received, and exits.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from nnhal.v1 import session_pb2

RETRY_S = 0.005

received: list[str] = []


class RecordEverything(grpc.GenericRpcHandler):
    """Handler of any call, which records the request. It opens sessions and confirms releases, as a service does."""

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Return a handler that records the request."""
        method = str(details.method).rpartition("/")[2]

        def respond(request: bytes, context: grpc.ServicerContext) -> bytes:
            received.append(f"{method}: {len(request)} bytes")
            return b""

        def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            received.append(f"{method}: {len(request)} bytes")
            opened = session_pb2.SessionOpened(session=bytes(16))
            yield session_pb2.SessionEvent(opened=opened).SerializeToString()

        if method in ("Open", "PrepareModel", "PrepareModelFromCache"):
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(respond)


def serve_grpc(address: str) -> Callable[[], object]:
    """Record gRPC calls, and return a function that stops."""
    host, _, port = address.rpartition(":")

    def is_free() -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
        return True

    retry(is_free)
    server = grpc.server(ThreadPoolExecutor(4), [RecordEverything()], options=[("grpc.so_reuseport", 0)])
    server.add_insecure_port(address)
    server.start()
    return lambda: server.stop(None).wait()


def serve_data_socket(name: str) -> Callable[[], object]:
    """Record packets on a data socket, and return a function that stops."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def is_bound() -> bool:
        listener.bind("\0" + name[1:])
        return True

    retry(is_bound)
    listener.listen()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                if data := connection.recv(65536):
                    received.append(f"packet of {len(data)} bytes")

    thread = threading.Thread(target=accept)
    thread.start()

    def stop() -> None:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()

    return stop


def retry(action: Callable[[], bool]) -> None:
    """Repeat an action until the address is free."""
    while True:
        try:
            action()
            return
        except OSError:
            time.sleep(RETRY_S)


def main(user: int, address: str) -> None:
    """Run until the end of the input."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    print("ready", flush=True)
    stop = serve_data_socket(address) if address.startswith("@") else serve_grpc(address)
    print("listening", flush=True)
    sys.stdin.read()
    stop()
    print(json.dumps(received), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
