"""Connections to the data socket of a service on the same machine, and memory to share with it.

See docs/same-machine.md. A service on another machine, or one that rejects this user, is reached over gRPC only.
"""

import fcntl
import mmap
import os
import socket
from collections.abc import Sequence

import numpy as np

from nnhal.client.core.rpc_errors import error_from_detail
from nnhal.client.core.service_user import VARIABLE, trusted_users
from nnhal.local_users import socket_user
from nnhal.shm.protocol import MAX_BYTES, Packet, PacketKind, pack_hello
from nnhal.types import Bytes
from nnhal.v1 import error_pb2

_PREFIX = "@nnhal-"
"""Required prefix of socket names: a service cannot make the client connect to the socket of another program."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CONNECT_TIMEOUT_S = 5.0


class SharedMemory:
    """Sealed memfd, mapped for writing. Its descriptor is closed once the service has it."""

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("nnhal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self.bytes: Bytes = np.frombuffer(mmap.mmap(self.descriptor, size), np.uint8)
        except BaseException:
            os.close(self.descriptor)
            raise


def create_sealed_memory(data: Bytes) -> int:
    """Create a memfd with some bytes, sealed against every change.

    Returns:
        the descriptor, which the caller closes.
    """
    descriptor = os.memfd_create("nnhal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        remaining = data.data
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_WRITE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def connect(name: str, session: bytes, secret: bytes) -> socket.socket:
    """Connect a session to the data socket of its service.

    Raises:
        OSError: there is no such socket on this machine, it rejects this user, or its user is not trusted.
        HalError: the session has too many connections, or has ended.
        ProtocolError: the answer is invalid.
    """
    if not name.startswith(_PREFIX):
        raise OSError(f"invalid name {name!r} of a data socket; expected {_PREFIX!r} at its start")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect("\0" + name[1:])
        if (user := socket_user(connection)) not in trusted_users():
            raise PermissionError(f"the data socket belongs to user {user}, who is not trusted (set {VARIABLE})")
        connection.send(Packet(PacketKind.HELLO, body=pack_hello(session, secret)).pack())
        answer = connection.recv(MAX_BYTES)
        if not answer:
            raise ConnectionRefusedError("the data socket rejects this client")
        raise_for_error(Packet.unpack(answer))
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def send_packet(connection: socket.socket, packet: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send an encoded packet, with duplicates of descriptors."""
    if descriptors:
        socket.send_fds(connection, [packet], list(descriptors))
    else:
        connection.send(packet)


def raise_for_error(packet: Packet) -> None:
    """Raise the error of an ERROR packet.

    Raises:
        HalError: the service reported an error.
    """
    if packet.kind == PacketKind.ERROR:
        raise error_from_detail(error_pb2.ErrorDetail.FromString(packet.body))
