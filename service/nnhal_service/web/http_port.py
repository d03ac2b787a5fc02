"""HTTP port of a service: application, server, access and TLS, as the settings say."""

import socket

from nnhal.address import Address
from nnhal_service.access import create_authentication
from nnhal_service.admin.view import ServiceView
from nnhal_service.settings import Settings
from nnhal_service.tls import load_certificates
from nnhal_service.web.access import HttpAccess, ReadOnlyAccess
from nnhal_service.web.application import WebApplication
from nnhal_service.web.http_server import HttpServer


class HttpPort:
    """The port. It serves until `close`.

    Args:
        settings: settings of the service.
        view: the service.
        listener: the listening socket, which remains the caller's.

    Raises:
        ValueError: certificates, tokens or keys cannot be used.
    """

    def __init__(self, settings: Settings, view: ServiceView, listener: socket.socket) -> None:
        certificates = load_certificates(settings)
        tls = None
        if certificates is not None:
            from nnhal_service.web.tls_context import create_tls_context  # noqa: PLC0415 - loads cryptography

            tls = create_tls_context(certificates)
        application = WebApplication(view, _access(settings, listener), None if tls else _hosts(settings))
        self._observer = application.observer
        self._server = HttpServer(application.asgi, listener, tls)
        self._observer.start()
        self._server.start()

    def close(self) -> None:
        """Finish the requests in progress within 2 s, and end. May be called more than once."""
        self._server.stop()
        self._observer.stop()


def _access(settings: Settings, listener: socket.socket) -> HttpAccess:
    if not settings.needs_identity:
        return ReadOnlyAccess()
    from nnhal_service.web.identity_access import IdentityAccess  # noqa: PLC0415 - loads cryptography

    authentication = create_authentication(settings)
    authentication.ports = (listener.getsockname()[1],)
    return IdentityAccess(authentication)


def _hosts(settings: Settings) -> tuple[str, ...]:
    own = [Address.parse(settings.http_listen).host] if settings.http_listen else []
    return (*own, *settings.http_hosts)
