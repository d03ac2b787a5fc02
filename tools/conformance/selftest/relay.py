"""A transparent relay of a data socket, with room for one fault: what the proxy is for gRPC (docs/same-machine.md).

A hook takes the place of all requests: it sees the frame, forwards what it likes, and answers what it likes.
"""

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from nnhal.frames import MAX_BYTES, Frame, Malformed
from nnhal.v1 import session_pb2

PREFIX = "@nnhal-relay-"

_MAX_DESCRIPTORS = 4

DataHook = Callable[["Exchange", Frame], Frame | None]
"""Answers a request: (exchange, request) gives the answer, or None to end the connection."""


class Exchange:
    """One request on its way through the relay.

    Attributes:
        opened: what the session was told.
        descriptors: what came with the request.
        kept: what a fault keeps from request to request; one for each connection.
    """

    def __init__(
        self,
        opened: session_pb2.SessionOpened,
        device: socket.socket,
        descriptors: Sequence[int],
        kept: dict[Any, Any],
    ) -> None:
        self.opened, self.kept = opened, kept
        self.descriptors = descriptors
        self._device = device

    def forward(self, request: Frame) -> Frame | None:
        """The device's answer; None where it ends the connection. The descriptors of the request go with it."""
        packet = self.forward_packet(request.pack())
        return Frame.unpack(packet) if packet else None

    def forward_packet(self, packet: bytes) -> bytes:
        """The same, for bytes that may be no frame; b"" where the device ends the connection."""
        socket.send_fds(self._device, [packet], self.descriptors)
        return self._device.recv(MAX_BYTES)


class Relay:
    """Listens, with a thread for each connection. Close it when done.

    Attributes:
        name: of its socket, for clients.
    """

    def __init__(self, opened: session_pb2.SessionOpened, hook: DataHook) -> None:
        self.name = PREFIX + secrets.token_hex(16)
        self._opened = session_pb2.SessionOpened()
        self._opened.CopyFrom(opened)
        self._hook = hook
        self._connections: list[tuple[socket.socket, socket.socket, threading.Thread]] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + self.name[1:])
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, name="nnhal-relay", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for client, device, thread in self._connections:
            for end in (client, device):
                with suppress(OSError):  # its thread has closed it
                    end.shutdown(socket.SHUT_RDWR)
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
        kept: dict[Any, Any] = {}
        with client, device, suppress(OSError):
            device.connect("\0" + self._opened.data_socket[1:])
            while answer := self._answer(client, device, kept):
                client.send(answer)

    def _answer(self, client: socket.socket, device: socket.socket, kept: dict[Any, Any]) -> bytes:
        """The answer to the next request; b"" where one side ends the connection."""
        packet, descriptors, _, _ = socket.recv_fds(client, 2 * MAX_BYTES, _MAX_DESCRIPTORS)
        try:
            if not packet:
                return b""
            exchange = Exchange(self._opened, device, descriptors, kept)
            try:
                request = Frame.unpack(packet)
            except Malformed:
                return exchange.forward_packet(packet)
            answer = self._hook(exchange, request)
            return answer.pack() if answer else b""
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
