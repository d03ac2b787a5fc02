"""Packets with descriptors from workers to a process of their service, which never wait.

All workers send to one packet socket, which outlives the process. A request that has an answer brings the end of a
socket of its own, over which its answers come; when the process ends, this socket ends too.
"""

import json
import socket
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

MAX_BYTES = 2**16
"""Largest message."""
_MAX_DESCRIPTORS = 4
_DESCRIPTOR_BYTES = array("i").itemsize

Message = Mapping[str, Any]


def send(to: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> bool:
    """Send a message without waiting. Return False if the other end is closed, or its queue is full."""
    # socket.send_fds and recv_fds ignore their flags
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
    try:
        to.sendmsg([json.dumps(message).encode()], rights, socket.MSG_DONTWAIT)
    except OSError:
        return False
    return True


def receive(end: socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message with its descriptors; None if there is none, or the other end is closed."""
    space = socket.CMSG_LEN(_MAX_DESCRIPTORS * _DESCRIPTOR_BYTES)
    try:
        text, rights, _, _ = end.recvmsg(MAX_BYTES, space, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    except (BlockingIOError, ConnectionResetError):
        return None
    descriptors = array("i")
    for _, _, data in rights:
        descriptors.frombytes(data[: len(data) // _DESCRIPTOR_BYTES * _DESCRIPTOR_BYTES])
    return (json.loads(text), list(descriptors)) if text else None
