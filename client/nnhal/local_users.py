"""Users at the other end of a connection on this machine, as the kernel reports them."""

import os
import socket
import stat
import struct
import sys
from collections.abc import Collection
from contextlib import suppress

from nnhal.address import Address

_CREDENTIALS = struct.Struct("3i")
_ESTABLISHED, _LISTENING = "01", "0A"
_TABLES = {socket.AF_INET: "/proc/net/tcp", socket.AF_INET6: "/proc/net/tcp6"}


def socket_user(connection: socket.socket) -> int:
    """Return the id of the user at the other end of a connected Unix socket.

    Raises:
        OSError: the system does not tell.
    """
    return _peer(connection)[1]


def socket_process(connection: socket.socket) -> int:
    """Return the id of the process at the other end of a connected Unix socket; 0 if it is not visible here.

    Raises:
        OSError: the system does not tell.
    """
    return _peer(connection)[0]


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Return process and user."""
    if sys.platform != "linux":
        raise OSError("the system does not tell who is at the other end of a socket")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(data)
    return process, user


def listening_user(address: Address) -> int | None:
    """Return the id of the user who listens at an address of this machine, or None if it is unknown.

    It is unknown if there is no listener, or if the system does not tell.
    """
    if address.kind == "unix":
        with suppress(OSError):
            status = os.stat(address.path)
            return status.st_uid if stat.S_ISSOCK(status.st_mode) else None
        return None
    hosts = ["127.0.0.1", "::1"] if address.host == "localhost" else [address.host]
    # sockets that are bound to the address itself come before those that are bound to all addresses
    for host in (*hosts, "0.0.0.0", "::"):
        if (user := _tcp_user(_LISTENING, (host, address.port))) is not None:
            return user
    return None


def connected_user(local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """Return the id of the user who owns a connected TCP socket of this machine, or None if it is unknown.

    `local` and `remote` are the IP addresses and ports of the socket and of the other end.
    """
    return _tcp_user(_ESTABLISHED, local, remote)


def _tcp_user(state: str, local: tuple[str, int], remote: tuple[str, int] | None = None) -> int | None:
    """Return the user id of a TCP socket in the tables of the kernel, or None if it is not there."""
    forms = [socket.AF_INET6] if ":" in local[0] else [socket.AF_INET, socket.AF_INET6]
    users = (_table_user(family, state, local, remote) for family in forms)
    return next((user for user in users if user is not None), None)


def _table_user(
    family: socket.AddressFamily, state: str, local: tuple[str, int], remote: tuple[str, int] | None
) -> int | None:
    if sys.platform != "linux":
        return None
    wanted = _table_address(family, *local), _table_address(family, *remote) if remote else None
    with suppress(OSError), open(_TABLES[family], encoding="utf-8") as table:
        next(table)
        for line in table:
            _, own, other, row_state, _, _, _, user, _, inode, *_ = line.split()
            # a socket that its process has closed has no inode, and reports root
            if row_state == state and own == wanted[0] and wanted[1] in (None, other) and inode != "0":
                return int(user)
    return None


def _table_address(family: socket.AddressFamily, host: str, port: int) -> str:
    """Return an address in the form of the table: words of 32 bits in the byte order of the machine.

    gRPC's sockets are of IPv6, and have mapped addresses for IPv4.
    """
    if family == socket.AF_INET6 and ":" not in host:
        host = "::" if host == "0.0.0.0" else f"::ffff:{host}"
    packed = socket.inet_pton(family, host)
    words = (int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def own_and_root(others: Collection[int] = ()) -> frozenset[int]:
    """Return the ids of this process's user, of root, and of others. Windows has no such ids."""
    if sys.platform == "win32":
        return frozenset(others)
    return frozenset({os.geteuid(), 0, *others})
