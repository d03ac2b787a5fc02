"""Sockets that a service manager has opened for this process, such as systemd: the protocol of sd_listen_fds(3)."""

import os
import socket
from collections.abc import Mapping, MutableMapping

from nnhal_service.settings import Settings

_FIRST = 3
"""Descriptor of the first socket."""


def receive_sockets(
    environment: MutableMapping[str, str] = os.environ, first: int = _FIRST
) -> dict[str, socket.socket]:
    """Return the sockets that were opened for this process, by address: HOST:PORT or unix:PATH. They are listening.

    Args:
        environment: $LISTEN_PID, $LISTEN_FDS and $LISTEN_FDNAMES are taken from there and removed.
        first: descriptor of the first socket.

    Raises:
        ValueError: one of them is not a listening TCP or Unix socket.
    """
    process, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "0")
    environment.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not count.isdecimal():
        return {}
    received = {}
    for descriptor in range(first, first + int(count)):
        try:
            os.set_inheritable(descriptor, False)
            each = socket.socket(fileno=descriptor)
            is_listening = each.type == socket.SOCK_STREAM and each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise ValueError(f"descriptor {descriptor} of the service manager: {error.strerror}") from None
        if not is_listening:
            raise ValueError(f"descriptor {descriptor} of the service manager is not a listening stream socket")
        each.setblocking(False)
        received[_address(each)] = each
    return received


def with_sockets(settings: Settings, sockets: Mapping[str, socket.socket]) -> Settings:
    """Return settings that listen on sockets, and on the addresses that an operator has set; not on the default one."""
    if not sockets:
        return settings
    others = settings.listen if "listen" in settings.model_fields_set else ()
    return settings.model_copy(update={"listen": tuple(dict.fromkeys((*sockets, *others)))})


def _address(received: socket.socket) -> str:
    """Return the text of the address of a socket."""
    name = received.getsockname()
    if received.family == socket.AF_UNIX and isinstance(name, str) and name:
        return f"unix:{name}"
    if received.family == socket.AF_INET:
        return f"{name[0]}:{name[1]}"
    if received.family == socket.AF_INET6:
        return f"[{name[0]}]:{name[1]}"
    raise ValueError(f"the service manager has opened a socket with the address {name!r}; expected TCP or a path")
