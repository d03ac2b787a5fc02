"""TCP ports, bound on all addresses of a host, the error of an address that cannot be bound, and IP addresses."""

import errno
import ipaddress
import socket
from contextlib import ExitStack

from nnhal.address import Address


def check_unused(address: Address) -> None:
    """Check that nothing listens on an address, not even a service of this user that shares its port.

    Raises:
        OSError: it is in use, or no address of the host belongs to this machine.
    """
    with ExitStack() as stack:
        bind_port(address, address.port, stack, reuse_port=False)


def bind_port(address: Address, port: int, stack: ExitStack, *, reuse_port: bool = True) -> int:
    """Bind a port on all addresses of a host until the stack is closed, and return the port.

    Raises:
        OSError: it is in use, or no address of the host belongs to this machine.
    """
    failures: list[OSError] = []
    hosts = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, host in hosts:
        try:
            holder = stack.enter_context(socket.socket(family, kind, protocol))
            if family == socket.AF_INET6:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind((host[0], port, *host[2:]))
            port = holder.getsockname()[1]
        except OSError as error:
            failures.append(error)
    # one family may be missing: many machines resolve localhost to ::1 without having it
    if failures and (len(failures) == len(hosts) or any(error.errno == errno.EADDRINUSE for error in failures)):
        raise failures[-1]
    return port


def cannot_listen(text: str, error: OSError) -> ValueError:
    """Return the error of an address that cannot be bound."""
    in_use = "; is another service running there?" if error.errno == errno.EADDRINUSE else ""
    return ValueError(f"cannot listen on {text}: {(error.strerror or str(error)).lower()}{in_use}")


def is_ip(host: str) -> bool:
    """Return whether a host is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
