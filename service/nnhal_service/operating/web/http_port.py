"""HTTP port of a service: application, server, access and TLS, as the settings say."""

import socket
from collections.abc import Callable
from functools import partial

from nnhal.address import Address
from nnhal_service.log import event
from nnhal_service.operating.admin.service_view import ServiceView
from nnhal_service.operating.web.access import ReloadingAccess
from nnhal_service.operating.web.application import WebApplication
from nnhal_service.operating.web.http_server import HttpServer
from nnhal_service.operating.web.inference.endpoints import InferenceEndpoints
from nnhal_service.operating.web.inference.worker_calls import WorkerCalls
from nnhal_service.operating.web.tls_connection import TlsConnection, create_tls_context
from nnhal_service.sessions.limits import Limits
from nnhal_service.settings import Settings
from nnhal_service.tls import load_certificates
from nnhal_service.tls.failed_handshakes import FailedHandshakes


class HttpPort:
    """The port. It serves until `close`.

    Args:
        listener: the listening socket, which remains the caller's.
        read_settings: returns the current settings, whose rights count soon after a reload.

    Raises:
        ValueError: certificates, tokens or keys cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        view: ServiceView,
        listener: socket.socket,
        read_settings: Callable[[], Settings],
    ) -> None:
        certificates, add_tls = load_certificates(settings), None
        if certificates is not None:
            failed = FailedHandshakes("http", view.count).note
            add_tls = partial(TlsConnection, context=create_tls_context(certificates), failed=failed)
        port = listener.getsockname()[1]
        access = ReloadingAccess(settings, port, read_settings, view.count)
        own = [Address.parse(settings.http_listen).host] if settings.http_listen else []
        hosts = None if certificates else (*own, *settings.http_hosts)
        application = WebApplication(view, access.find_rights, hosts, _inference(settings, view, access))
        self._observer = application.observer
        self._server = HttpServer(application.asgi, listener, add_tls)
        self._observer.start()
        self._server.start()
        event("http-serving", port=port, tls=certificates is not None)

    def close(self) -> None:
        """Finish the requests in progress within 2 s, and end. May be called more than once."""
        self._server.stop()
        self._observer.stop()


def _inference(settings: Settings, view: ServiceView, access: ReloadingAccess) -> InferenceEndpoints | None:
    """Return the endpoints for models by name, if the service has such models."""
    if settings.models is None:
        return None
    limit = Limits(settings.limits)["message_bytes"]
    calls = WorkerCalls(partial(view.shared_workers, settings.workers), limit)
    return InferenceEndpoints(calls, access.identify, limit)
