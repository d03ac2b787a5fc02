"""Connections in the child of a fork: they stay with the parent.

The child has copies of the parent's sockets and memory, but none of its threads. If it used them, messages of the two
processes would mix, and results would reach the wrong one. So everything that is connected says in the child that it
belongs to the parent. It is never finalized there either: the finalizers of gRPC would end calls of the parent.
"""

import ctypes
import os
import socket
import sys
import weakref
from typing import Protocol

from nnhal.errors import SessionLostError
from nnhal.types import ErrorKind, ErrorStatus


class Connected(Protocol):
    """Object that uses the connections of its process."""

    def leave_to_parent(self) -> None:
        """Refuse all further calls, and leave everything as it is. Called in the child of a fork."""


_connected: "weakref.WeakSet[Connected]" = weakref.WeakSet()
_sockets: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


def watch_forks(connected: Connected) -> None:
    """Call `leave_to_parent` of an object in each child that this process forks."""
    _connected.add(connected)


def close_in_forks(connection: socket.socket) -> None:
    """Close the copies of a socket in each child that this process forks."""
    _sockets.add(connection)


def forked_error() -> SessionLostError:
    """Return the error of a call in the child of a fork."""
    reason = "the device belongs to another process, which has forked this one; connect in each process"
    return SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, reason, kind=ErrorKind.SESSION_LOST)


def _leave_all() -> None:
    for connected in list(_connected):
        connected.leave_to_parent()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connected))  # also at the end of the interpreter
    for connection in list(_sockets):
        connection.close()
    _connected.clear()
    _sockets.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_all)
