"""Listener of the data socket, over which clients on the same machine share memory and execute (docs/same-machine.md).

It is a Unix socket in the abstract namespace, which leaves no file behind. A client must run as an allowed user, and
must then present a session and its secret. Each connection is served by a thread that this module starts and joins,
because asyncio cannot receive descriptors. A client that breaks the protocol, stalls or dies loses its connection and
what it shared over it.
"""

import secrets
import select
import socket
import threading
import time
from collections.abc import Collection

from nnhal.errors import HalError, invalid_argument
from nnhal.local_users import socket_user
from nnhal_service.log import RepeatedEvent
from nnhal_service.memory_limits import thread_follower
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.sessions.client_slots import ClientSlots
from nnhal_service.sessions.session import STOPPING
from nnhal_service.shm.connection import ClientConnection, OnMethodError

PREFIX = "@nnhal-"
"""Start of the socket's name; @ stands for the zero byte that begins abstract names."""

UNAUTHENTICATED = 32
"""Connections that have not authenticated yet, besides the limit data_connections. One more ends the oldest of them:
a client authenticates at once, so that connections that are silent do not keep others out."""
_BACKLOG = 1024
"""Connections that wait to be accepted. The kernel refuses further ones at once, so that clients fall back to gRPC."""


class DataSocket:
    """Accepts and owns connections. Call `start`; close it when done.

    Args:
        users: user ids that may connect.
        count_error: is called with the name of a request and its error.

    Attributes:
        name: name of the socket, as clients receive it.
    """

    def __init__(self, parts: ServiceParts, users: Collection[int], count_error: OnMethodError) -> None:
        self.name = PREFIX + secrets.token_hex(16)
        self._parts = parts
        self._count_error = count_error
        self._users = frozenset(users)
        self._slots = ClientSlots(parts.limits, "data_connections")
        self._connections: dict[ClientConnection, threading.Thread] = {}
        self._watched: dict[int, ClientConnection] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._refusals = RepeatedEvent("data-refused")
        self._watcher = threading.Thread(target=self._watch, name="nnhal-data", daemon=True)

    def start(self) -> None:
        """Start to listen."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + self.name[1:])
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self._events = select.epoll()
        self._events.register(self._listener, select.EPOLLIN)
        self._watcher.start()

    def drain(self, grace_s: float) -> None:
        """Wait until the running executions of connections that drain have finished, for some seconds at most."""
        until = time.monotonic() + grace_s
        with self._lock:
            threads = list(self._connections.values())
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """End all connections and threads."""
        with self._lock:
            self._closed = True
            connections = dict(self._connections)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._watcher.join()
        self._events.close()
        self._listener.close()
        for connection, thread in connections.items():
            connection.end(STOPPING)
            thread.join()

    def _watch(self) -> None:
        """Accept connections, and detect clients that disconnect while the thread of their connection executes."""
        listener = self._listener.fileno()
        while not self._closed:
            ready = {descriptor for descriptor, _ in self._events.poll()}
            # ended connections first: a new connection may reuse the descriptor number of an ended one
            self._end_disconnected(ready - {listener})
            if listener in ready:
                self._accept()

    def _end_disconnected(self, descriptors: Collection[int]) -> None:
        for descriptor in descriptors:
            connection = self._watched.get(descriptor)
            # a connection that drains looks as if its client had disconnected
            if connection is not None and not connection.is_draining:
                connection.end("the client has disconnected")

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if not self._closed:
                self._refusals.log(reason=str(error))
                time.sleep(0.1)  # the process may be out of descriptors; open connections continue
            return
        accepted.setblocking(True)
        try:
            self._add(accepted)
        except (HalError, OSError, RuntimeError) as error:
            self._refusals.log(reason=str(error))
            accepted.close()

    def _add(self, accepted: socket.socket) -> None:
        """Start the thread of a connection."""
        if (user := socket_user(accepted)) not in self._users:
            raise invalid_argument(f"user {user} may not use the data socket")
        connection = ClientConnection(self._parts, self._slots, accepted, self._count_error)
        thread = threading.Thread(target=self._serve, args=(connection,), name="nnhal-data-call", daemon=True)
        with self._lock:
            if self._closed:
                raise invalid_argument("the service stops")
            waiting = [each for each in self._connections if not each.is_authenticated]
            if len(waiting) >= UNAUTHENTICATED:
                waiting[0].end("it has not authenticated")
            # before the thread starts, because the thread may close the socket at once
            self._events.register(accepted, select.EPOLLRDHUP | select.EPOLLET)
            thread_follower.adjust(starting=1)
            thread.start()
            self._connections[connection] = thread
            self._watched[connection.number] = connection

    def _serve(self, connection: ClientConnection) -> None:
        try:
            connection.serve()
        finally:
            with self._lock:
                del self._connections[connection]
                # a new connection may have the number by now
                if self._watched.get(connection.number) is connection:
                    del self._watched[connection.number]
