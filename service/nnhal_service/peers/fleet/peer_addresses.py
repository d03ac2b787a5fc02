"""Addresses of the other services of a fleet without Ray: a list, or a name in DNS that leads to all of them."""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnhal.address import Address

_DNS = "dns:///"
_RESOLVE_S = 5.0
"""Seconds between two resolutions of a name."""


@dataclass(frozen=True, slots=True)
class PeerTarget:
    """Parsed value of `fleet_peers`: a name that leads to all services of a fleet, or their addresses.

    Attributes:
        name: HOST:PORT whose host has the addresses of all services in DNS, or "".
        addresses: addresses of administrations, if there is no such name.
    """

    name: str
    addresses: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> "PeerTarget":
        """Return the target in a text: dns:///NAME:PORT, or addresses with commas between them.

        Raises:
            ValueError: it is neither.
        """
        if text.startswith(_DNS):
            name = text.removeprefix(_DNS)
            if Address.parse(name).kind != "tcp":
                raise ValueError(f"invalid fleet_peers {text!r}; expected dns:///NAME:PORT")
            return PeerTarget(name, ())
        addresses = tuple(each.strip() for each in text.split(","))
        for each in addresses:
            Address.parse(each)
        return PeerTarget("", addresses)


class PeerAddresses:
    """Addresses of the administrations of a fleet. A name is resolved again regularly.

    Args:
        look_up: resolves a host and a port, see `socket.getaddrinfo`.
    """

    def __init__(
        self,
        target: PeerTarget,
        look_up: Callable[..., Sequence[tuple[object, ...]]] = socket.getaddrinfo,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._look_up = look_up
        self._clock = clock
        self._addresses = target.addresses
        self._resolve_at = float("-inf")

    @property
    def host(self) -> str:
        """The name that certificates of services must have; "" if each has that of its address."""
        return Address.parse(self._target.name).host if self._target.name else ""

    def find(self) -> Sequence[str]:
        """Return the addresses. While the name cannot be resolved, those of before count."""
        if self._target.name and self._clock() >= self._resolve_at:
            self._resolve_at = self._clock() + _RESOLVE_S
            name = Address.parse(self._target.name)
            try:
                found = self._look_up(name.host, name.port, type=socket.SOCK_STREAM)
            except OSError:
                return self._addresses
            hosts = dict.fromkeys(str(entry[4][0]) for entry in found)  # type: ignore[index]
            self._addresses = tuple(f"[{host}]:{name.port}" if ":" in host else f"{host}:{name.port}" for host in hosts)
        return self._addresses
