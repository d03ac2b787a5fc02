"""Transparent relay of a data socket, with a hook that injects a fault (docs/same-machine.md).

The relay is to the data socket what the proxy is to gRPC. The hook receives each request packet, and may forward it,
change it or answer it.
"""

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from nnhal.shm.protocol import MAX_BYTES, Packet, ProtocolError
from nnhal.v1 import session_pb2

PREFIX = "@nnhal-relay-"

DRAIN_S = 0.5
"""Time limit in seconds for a connection to end by itself."""

_MAX_DESCRIPTORS = 4

DataHook = Callable[["RelayedRequest", Packet], Packet | None]
"""Function of a relayed request and its packet that returns the answer, or None to close the connection."""


class RelayedRequest:
    """Request on its way through the relay.

    Attributes:
        opened: the event that opened the session, with the name and the secret of the data socket.
        descriptors: the file descriptors that came with the request.
        state: a dictionary that the hook keeps between the requests of a connection.
    """

    def __init__(
        self,
        opened: session_pb2.SessionOpened,
        device: socket.socket,
        descriptors: Sequence[int],
        state: dict[Any, Any],
    ) -> None:
        self.opened, self.state = opened, state
        self.descriptors = descriptors
        self._device = device

    def forward(self, request: Packet) -> Packet | None:
        """Forward a request with the descriptors, and return the device's answer.

        Returns:
            The answer, or None if the device closes the connection.
        """
        packet = self.forward_packet(request.pack())
        return Packet.unpack(packet) if packet else None

    def forward_packet(self, packet: bytes) -> bytes:
        """Forward bytes that may not be a valid packet, with the descriptors.

        Returns:
            The bytes of the answer, or b"" if the device closes the connection.
        """
        try:
            socket.send_fds(self._device, [packet], self.descriptors)
            return self._device.recv(MAX_BYTES)
        except (BrokenPipeError, ConnectionResetError):
            return b""


class Relay:
    """Relay with a thread for each connection. Use it as a context manager.

    Attributes:
        socket_name: the name of its socket for clients, in the form of SessionOpened.data_socket.
    """

    def __init__(self, opened: session_pb2.SessionOpened, hook: DataHook) -> None:
        self.socket_name = PREFIX + secrets.token_hex(16)
        self._opened = session_pb2.SessionOpened()
        self._opened.CopyFrom(opened)
        self._hook = hook
        self._connections: list[tuple[socket.socket, socket.socket, threading.Thread]] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + self.socket_name[1:])
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, name="nnhal-relay", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Give the connections time to end by themselves, when those of the device have ended."""
        for _, _, thread in self._connections:
            thread.join(DRAIN_S)

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for client, device, thread in self._connections:
            for connection in (client, device):
                with suppress(OSError):  # The thread has closed it.
                    connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            device = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            thread = threading.Thread(target=self._serve, args=(client, device), name="nnhal-relay", daemon=True)
            self._connections.append((client, device, thread))
            thread.start()

    def _serve(self, client: socket.socket, device: socket.socket) -> None:
        state: dict[Any, Any] = {}
        with client, device, suppress(OSError):
            device.connect("\0" + self._opened.data_socket[1:])
            while answer := self._answer(client, device, state):
                client.send(answer)

    def _answer(self, client: socket.socket, device: socket.socket, state: dict[Any, Any]) -> bytes:
        """Return the answer to the next request, or b"" if one side closes the connection."""
        packet, descriptors, _, _ = socket.recv_fds(client, 2 * MAX_BYTES, _MAX_DESCRIPTORS)
        try:
            if not packet:
                return b""
            relayed = RelayedRequest(self._opened, device, descriptors, state)
            try:
                request = Packet.unpack(packet)
            except ProtocolError:
                return relayed.forward_packet(packet)
            answer = self._hook(relayed, request)
            return answer.pack() if answer else b""
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
