"""Server with one method of messages, for tests of the streams and calls of the client."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

TIMEOUT_S = 60


@contextmanager
def serving(name: str, handler: Any) -> Iterator[str]:
    """Serve the method /test.Messages/NAME. Yield the address."""
    with ThreadPoolExecutor(16) as pool:
        server = grpc.server(pool, options=[("grpc.max_receive_message_length", -1)])
        server.add_registered_method_handlers("test.Messages", {name: handler})
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait(TIMEOUT_S)


@contextmanager
def connected(target: str) -> Iterator[grpc.Channel]:
    """Yield a channel to a server. Its responses may have any size."""
    with grpc.insecure_channel(target, [("grpc.max_receive_message_length", -1)]) as channel:
        yield channel
