"""Addresses of services: HOST:PORT or unix:PATH."""

import ipaddress
import os
import re
import sys
from dataclasses import dataclass
from typing import Literal

SECURE_SCHEME = "grpcs://"
"""Prefix of targets that clients reach over TLS. It is not a part of the address."""
PLAIN_SCHEME = "grpc://"
"""Prefix of targets that clients reach without TLS. It may be left out."""
RAY_SCHEME = "ray://"
"""Prefix of the heads of clusters of Ray, which know the services of a fleet."""
_RAY_PORT = 6379
MAX_UNIX_PATH_BYTES = 107 if sys.platform == "linux" else 103
"""Longest path of a Unix socket that the operating system supports."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address that a service listens on.

    Attributes:
        kind: "tcp" or "unix".
        host: name or IP address, IPv6 without brackets; "" for Unix sockets.
        port: TCP port; 0 selects a free one.
    """

    kind: Literal["tcp", "unix"]
    host: str = ""
    port: int = 0
    path: str = ""

    @staticmethod
    def parse(text: str) -> "Address":
        """Parse an address.

        Raises:
            ValueError: the text is not an address.
        """
        if text.startswith("unix:") and text != "unix:":
            if sys.platform == "win32":
                raise ValueError(f"invalid address {text!r}: Windows has no Unix sockets; expected HOST:PORT")
            path = text.removeprefix("unix:")
            if (size := len(os.fsencode(path))) > MAX_UNIX_PATH_BYTES:
                raise ValueError(f"the path of {text!r} has {size} bytes; at most {MAX_UNIX_PATH_BYTES} are possible")
            return Address("unix", path=path)
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not _is_host(host) or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"invalid address {text!r}; expected HOST:PORT or unix:PATH")
        return Address("tcp", host=host, port=int(port))

    @property
    def is_local(self) -> bool:
        """Only this machine can reach the address: a Unix socket, or loopback."""
        if self.kind == "unix" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def with_port(self, port: int) -> str:
        """Return the text of the address with another TCP port."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def redirected(self, text: str) -> str:
        """Return the text of the address that a service at this address redirects a client to.

        Args:
            text: HOST:PORT, unix:PATH, or :PORT for a port of this address's host.

        Raises:
            ValueError: the text is not such an address, or a service on another machine names one of this machine.
        """
        if text.startswith(":") and self.kind == "tcp":
            text = self.with_port(0)[:-2] + text
        if Address.parse(text).is_local and not self.is_local:
            raise ValueError(f"a service on another machine redirects to {text!r}, which is on this machine")
        return text


def target_address(target: str) -> Address:
    """Return the address in a target, which may have a scheme. The port of the head of a cluster may be missing.

    Raises:
        ValueError: the text is not a target.
    """
    if target.startswith(RAY_SCHEME):
        text = target.removeprefix(RAY_SCHEME).rstrip("/")
        return Address.parse(text if text.rpartition(":")[2].isdecimal() else f"{text}:{_RAY_PORT}")
    for scheme in (SECURE_SCHEME, PLAIN_SCHEME):
        if target.startswith(scheme):
            return Address.parse(target.removeprefix(scheme).rstrip("/"))
    return Address.parse(target)


def _is_host(text: str) -> bool:
    """Return whether a text has the form of a host name or of an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return re.fullmatch(r"[\w.-]+", text) is not None
    return True
