"""Addresses at which a server listens."""

import grpc

from nnhal.address import Address
from nnhal_service.serving.grpc_listener import Listener
from nnhal_service.serving.hosting import Hosting
from nnhal_service.settings import Settings
from nnhal_service.tls import load_certificates


class Endpoints:
    """Addresses of one server.

    Attributes:
        certificates: certificates for TLS; None without TLS.

    Raises:
        ValueError: the certificates cannot be used.
    """

    def __init__(self, settings: Settings, hosting: Hosting) -> None:
        self.certificates = load_certificates(settings)
        self._texts = settings.listen if hosting.addresses is None else hosting.addresses
        self._hosting = hosting
        self._listeners: list[Listener] = []

    def bind(self, server: grpc.Server) -> None:
        """Bind all addresses.

        Raises:
            ValueError: an address is in use, or cannot be bound. Then none is bound.
        """
        try:
            for text in self._texts:
                self._listeners.append(
                    Listener(
                        server,
                        text,
                        reserved=self._hosting.is_supervised,
                        certificates=self.certificates,
                        inherited=self._hosting.inherited.get(text),
                        temporary=self._hosting.temporary,
                    )
                )
        except ValueError:
            self.remove_sockets()
            raise

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses with their real ports, once they are bound."""
        return tuple(listener.address for listener in self._listeners)

    @property
    def ports(self) -> tuple[int, ...]:
        """The TCP ports."""
        parsed = map(Address.parse, self.addresses)
        return tuple(address.port for address in parsed if address.kind == "tcp")

    @property
    def paths(self) -> list[str]:
        """Paths under which the kernel knows the Unix sockets and their connections."""
        return [listener.bound_path for listener in self._listeners if listener.bound_path]

    def release_inherited(self) -> None:
        """Leave new connections to inherited sockets to other processes. Call it before the server stops."""
        for listener in self._listeners:
            listener.release_inherited()

    def remove_sockets(self) -> None:
        """Remove the Unix sockets that are still those of this server."""
        for listener in self._listeners:
            listener.remove_socket()
