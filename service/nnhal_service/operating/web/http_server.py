"""HTTP server: uvicorn on a socket of ours, in a thread. Its TLS follows the files of the certificates, like gRPC."""

import asyncio
import os
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from nnhal_service.tls.certificates import Certificates
    from nnhal_service.tls.reloading import ReloadingCertificates

_FIRST_REQUEST_S = 10.0
"""Seconds in which a new connection must have sent its first request."""
_KEEP_ALIVE_S = 15
_MAX_CONNECTIONS = 256
_MAX_HEADER_BYTES = 16384
_STOP_S = 2
_PROTOCOLS = ["http/1.1"]


class HttpServer:
    """HTTP server on one socket.

    Args:
        listener: the listening socket, which remains the caller's. Connections wait there until the start.
        tls: context of the server; None for HTTP without TLS.
    """

    def __init__(self, application: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._socket = listener.dup()
        config = Config(
            application,
            http=_Connection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        )
        config.load()
        config.ssl = tls
        self._server = Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the requests in progress within 2 s, and end the thread. May be called more than once."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


class _Connection(H11Protocol):
    """Connection that ends if it does not send a request, and whose requests know the certificate of the client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        self.app_state: dict[str, Any] = {**self.app_state, "client_certificate": certificate}
        self._first_request = self.loop.call_later(_FIRST_REQUEST_S, self._close_idle)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._first_request.cancel()
        super().connection_lost(exc)

    def _close_idle(self) -> None:
        if self.cycle is None:
            self.transport.close()


def create_tls_context(certificates: "ReloadingCertificates") -> ssl.SSLContext:
    """Return a context that uses the latest certificates for each handshake.

    Clients may present a certificate, and need none: the page also takes tokens. An invalid one ends the handshake.
    """
    used = certificates.current
    latest = _context(used)

    def choose(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal used, latest
        certificates.refresh()
        if (current := certificates.current) != used:
            used, latest = current, _context(current)
        connection.context = latest

    outer = _context(used)
    outer.sni_callback = choose
    return outer


def _context(certificates: "Certificates") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_PROTOCOLS)
    file = os.memfd_create("nnhal-tls")  # the module ssl takes files only, and a key must not reach a disk
    try:
        os.write(file, certificates.key + b"\n" + certificates.chain)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    if certificates.client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=certificates.client_ca.decode("ascii", "replace"))
    return context
