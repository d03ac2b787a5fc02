"""Users of this machine at the other ends of connections, as the kernel reports them."""

import ipaddress
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from urllib.parse import unquote

from nnhal.local_users import connected_user, socket_user


def tcp_user(peer: str, ports: Collection[int]) -> int | None:
    """Return the id of the user at the other end of a connection on this machine, or None if it is unknown.

    Args:
        peer: as gRPC names it, for example ipv4:127.0.0.1:4000 or ipv6:[::1]:4000.
        ports: of the service. Others may have a connection with the same name to another port.
    """
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    host, _, port = rest.rpartition(":")
    address = host.strip("[]").partition("%")[0]
    if not ipaddress.ip_address(address).is_loopback:
        return None
    users = (connected_user((address, int(port)), (address, own)) for own in ports)
    return next((user for user in users if user is not None), None)


def unix_users(paths: Collection[str]) -> frozenset[int]:
    """Return the ids of the users who are connected to Unix sockets that this process has bound.

    gRPC does not tell which connection a call belongs to. If all are of one user, it need not.
    """
    users = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as copy:
            is_ours = copy.family == socket.AF_UNIX and copy.getsockname() in paths
            if is_ours and not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                users.add(socket_user(copy))
    return frozenset(users)
