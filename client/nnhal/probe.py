"""Attempt to connect to an address, to find out why a service does not respond."""

import errno
import os
import socket
import stat
import sys

from nnhal.address import Address

TIMEOUT_S = 0.5


def connection_problem(target: str) -> OSError | None:
    """Connect to an address and disconnect again. Return the error of the attempt, or None if it succeeded.

    It takes at most `TIMEOUT_S` after the name is resolved.
    """
    address = Address.parse(target)
    try:
        if address.kind == "tcp":
            socket.create_connection((address.host, address.port), TIMEOUT_S).close()
        elif sys.platform != "win32":  # which has no Unix sockets
            if not stat.S_ISSOCK(os.stat(address.path).st_mode):  # the system would say that the connection is refused
                return OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(TIMEOUT_S)
                probe.connect(address.path)
    except OSError as error:
        return error
    return None
