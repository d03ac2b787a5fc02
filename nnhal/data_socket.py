"""The client's side of the data socket: memory to share with a service on the same machine, and connections to it.

See docs/same-machine.md. A service elsewhere, or one that lets this user not in, cannot be reached this way: gRPC does
everything then.
"""

import fcntl
import mmap
import os
import socket
from collections.abc import Sequence

import numpy as np

from nnhal import frames
from nnhal.errors import HalError, SessionLostError
from nnhal.frames import Frame, Kind
from nnhal.types import Bytes, ErrorKind
from nnhal.v1 import error_pb2

_PREFIX = "@nnhal-"
"""Of the names that are connected to: a service cannot send us to a socket of somebody else."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_OPENING_S = 5.0


class SharedMemory:
    """A sealed memfd, mapped for writing. Its descriptor is closed once the service has it."""

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("nnhal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self.bytes: Bytes = np.frombuffer(mmap.mmap(self.descriptor, size), np.uint8)
        except BaseException:
            os.close(self.descriptor)
            raise


def constant_memory(data: Bytes) -> int:
    """A descriptor of a memfd with these bytes, sealed against every change; the caller closes it."""
    descriptor = os.memfd_create("nnhal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        left = data.data
        while left:
            left = left[os.write(descriptor, left) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_WRITE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def connect(name: str, session: bytes, secret: bytes) -> socket.socket:
    """A connection to the data socket of a service, for a session.

    Raises:
        OSError: there is no such socket here, or it lets this user not in.
        HalError: the session has too many connections, or has ended.
    """
    if not name.startswith(_PREFIX):
        raise OSError(f"{name!r} is no data socket of a service")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_OPENING_S)
        connection.connect("\0" + name[1:])
        connection.send(Frame(Kind.HELLO, body=frames.greeting(session, secret)).pack())
        packet = connection.recv(frames.MAX_BYTES)
        if not packet:
            raise ConnectionRefusedError("the data socket lets this client not in")
        raise_error(Frame.unpack(packet))
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def send(connection: socket.socket, packet: bytes, descriptors: Sequence[int] = ()) -> None:
    """Sends a frame, and duplicates of descriptors."""
    if descriptors:
        socket.send_fds(connection, [packet], list(descriptors))
    else:
        connection.send(packet)


def raise_error(frame: Frame) -> None:
    """Raises the error of an ERROR frame.

    Raises:
        HalError: what the service says.
    """
    if frame.kind != Kind.ERROR:
        return
    detail = error_pb2.ErrorDetail.FromString(frame.body)
    kind = SessionLostError if int(detail.kind) == ErrorKind.SESSION_LOST else HalError
    raise kind(detail.status, detail.reason, rule=detail.rule, kind=detail.kind, limit=detail.limit)
