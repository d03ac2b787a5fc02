"""Listening sockets that another process has opened, for a gRPC server.

gRPC for Python opens the sockets of its servers itself. So it opens one of its own here, at an address that no client
knows. The inherited socket then takes over its descriptor, and its place in the set of descriptors that gRPC waits for,
which the kernel shows in /proc. Before the server stops, the inherited socket leaves this place: gRPC would shut it
down, for all processes that have it.
"""

import ctypes
import os
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_EPOLL_CTL_ADD, _EPOLL_CTL_DEL = 1, 2
_ENTRY = re.compile(r"^tfd:\s+(\d+) events:\s+([0-9a-f]+) data:\s+([0-9a-f]+)", re.MULTILINE)
_EVENT = "=IQ" if os.uname().machine == "x86_64" else "@IQ"
"""Layout of `struct epoll_event`: packed on x86_64 only."""
_libc = ctypes.CDLL(None, use_errno=True)


class InheritedSocket:
    """An inherited socket as a listener of a gRPC server that has not been started.

    Args:
        descriptor: the inherited socket, which listens. It is the caller's to close, after `release`.
        folder: place for a temporary Unix socket, if the inherited socket is a Unix socket.
        add_port: adds a port to the server, and returns its number.

    Raises:
        ValueError: this version of gRPC does not wait for its sockets as expected.
    """

    def __init__(self, descriptor: int, folder: Path, add_port: Callable[[str], int]) -> None:
        with socket.socket(fileno=os.dup(descriptor)) as inherited:
            inherited.setblocking(False)
            is_unix = inherited.family == socket.AF_UNIX
            if not is_unix:
                inherited.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it
        before = _sockets()
        path = folder / f"inherited-{descriptor}"
        port = add_port(f"unix:{path}" if is_unix else "127.0.0.1:0")
        opened = [each for each in _sockets() - before if _has_name(each, str(path), port)]
        with suppress(FileNotFoundError):
            path.unlink()
        entries = [entry for each in opened for entry in _entries(each)]
        if len(opened) != 1 or len(entries) != 1:
            raise ValueError("this version of gRPC cannot use a socket of a service manager; let it open the address")
        self._own = opened[0]
        self._poll, events, data = entries[0]
        os.dup2(descriptor, self._own, inheritable=False)
        _control(self._poll, _EPOLL_CTL_ADD, self._own, events, data)

    def release(self) -> None:
        """Accept no more connections. Those that arrive from now on wait for another process."""
        _control(self._poll, _EPOLL_CTL_DEL, self._own)
        with socket.socket(socket.AF_UNIX) as nothing:
            os.dup2(nothing.fileno(), self._own, inheritable=False)


def _sockets() -> set[int]:
    """Return the descriptors of this process that are sockets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.add(int(name))
    return found


def _has_name(descriptor: int, path: str, port: int) -> bool:
    """Return whether a descriptor is a socket with a path or a TCP port. It may be closed by now."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            name = copy.getsockname()
    except OSError:
        return False
    return name == path if isinstance(name, str) else bool(name) and name[1] == port


def _entries(descriptor: int) -> list[tuple[int, int, int]]:
    """Return the epoll descriptors that wait for a descriptor, with their events and data."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                text = Path(f"/proc/self/fdinfo/{name}").read_text(encoding="ascii")
                for target, events, data in _ENTRY.findall(text):
                    if int(target) == descriptor:
                        found.append((int(name), int(events, 16), int(data, 16)))
    return found


def _control(poll: int, operation: int, descriptor: int, events: int = 0, data: int = 0) -> None:
    """Change what an epoll descriptor waits for."""
    if _libc.epoll_ctl(poll, operation, descriptor, struct.pack(_EVENT, events, data)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
